"""A worker process and the socket to it, from the parent's side."""

import asyncio
import os
import socket
import subprocess
import sys

from engine.config import EngineConfig
from engine.process.connection import Connection
from engine.process.protocol import Configure


class WorkerProcess(Connection):
    """Owns both; `end` gives both back. Made by `spawn`."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        super().__init__(reader, writer)
        self._process = process

    @classmethod
    async def spawn(cls, config: EngineConfig) -> "WorkerProcess":
        """Starts loading at once; returns before the model is there. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            try:
                process = _started(theirs)
            except OSError:
                writer.close()
                raise
        worker = cls(process, reader, writer)
        worker.write(Configure(config=config))
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    async def end(self) -> int:
        """Kill, reap and close; returns the exit code, negative for a signal. Idempotent."""
        self._writer.close()
        self._process.kill()
        return await asyncio.to_thread(self._process.wait)


def _started(connection: socket.socket) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C in a terminal is for the parent, whose end ends us all.
    # Threads that wait by spinning slow a busy machine down by a factor of ten.
    # -P: a folder named `engine` where the user stands is not ours.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "engine.process.worker"],
        stdin=connection.fileno(),
        env=os.environ | {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive")},
        start_new_session=True,
    )
