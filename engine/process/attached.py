"""A worker process that somebody else started, from the side of one of its clients."""

import asyncio

import msgspec

from engine.process.protocol import FrameBuffer, FromWorker, ToWorker, frame

_RECEIVE_BYTES = 1 << 16
_TRY_AGAIN_S = 0.1


class Attached:
    """A connection to an `engine.process.relay.Relay`. Made by `connect`; `end` closes it."""

    pid = None

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameBuffer()
        self._decoder = msgspec.msgpack.Decoder(FromWorker)

    @classmethod
    async def connect(cls, path: str) -> "Attached":
        """Waits until somebody listens on the Unix socket `path`."""
        while True:
            try:
                return cls(*await asyncio.open_unix_connection(path))
            except (FileNotFoundError, ConnectionError):
                await asyncio.sleep(_TRY_AGAIN_S)

    def write(self, message: ToWorker) -> None:
        """Queued; lost when the connection is gone, which `read` will tell."""
        self._writer.write(frame(message))

    async def read(self) -> list[FromWorker]:
        """The next messages, at least one; empty when the other end has closed."""
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
        """Idempotent. There is no exit code to be had: 0."""
        self._writer.close()
        return 0
