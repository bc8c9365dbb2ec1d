"""A worker process and the socket to it, from the parent's side."""

import asyncio
import os
import socket
import subprocess
import sys

import msgspec

from engine.config import EngineConfig
from engine.process.protocol import Configure, FrameBuffer, FromWorker, ToWorker, frame

_RECEIVE_BYTES = 1 << 16


class WorkerProcess:
    """Owns both; `end` gives both back. Made by `spawn`."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._frames = FrameBuffer()
        self._decoder = msgspec.msgpack.Decoder(FromWorker)

    @classmethod
    async def spawn(cls, config: EngineConfig) -> "WorkerProcess":
        """Starts loading at once; returns before the model is there."""
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            # A session of its own: Ctrl-C in a terminal is for the parent, whose end ends us all.
            # Threads that wait by spinning slow a busy machine down by a factor of ten.
            # -P: a folder named `engine` where the user stands is not ours.
            process = subprocess.Popen(  # noqa: ASYNC220  # takes a millisecond
                [sys.executable, "-P", "-m", "engine.process.worker"],
                stdin=theirs.fileno(),
                env=os.environ | {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive")},
                start_new_session=True,
            )
        worker = cls(process, reader, writer)
        worker.write(Configure(config=config))
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, message: ToWorker) -> None:
        """Queued; lost when the process is dead, which `read` will tell."""
        self._writer.write(frame(message))

    async def read(self) -> list[FromWorker]:
        """The next messages, at least one; empty when the process has ended."""
        messages: list[FromWorker] = []
        while not messages:
            try:
                data = await self._reader.read(_RECEIVE_BYTES)
            except ConnectionError:
                data = b""
            if not data:
                break
            messages = [self._decoder.decode(body) for body in self._frames.feed(data)]
        return messages

    async def end(self) -> int:
        """Kill, reap and close; returns the exit code, negative for a signal. Idempotent."""
        self._writer.close()
        self._process.kill()
        return await asyncio.to_thread(self._process.wait)
