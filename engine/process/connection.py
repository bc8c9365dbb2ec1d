"""A worker's messages, as they come and go over a socket."""

import asyncio

import msgspec

from engine.process.protocol import FrameBuffer, FromWorker, ToWorker, frame

_RECEIVE_BYTES = 1 << 16


class Connection:
    """To a worker, or to who passes its messages on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameBuffer()
        self._decoder = msgspec.msgpack.Decoder(FromWorker)

    def write(self, *messages: ToWorker) -> None:
        """Queued; lost when the connection is gone, which `read` will tell. Where one of them
        cannot be written, which raises, none is."""
        self._writer.write(b"".join(map(frame, messages)))

    async def read(self) -> list[FromWorker]:
        """The next messages, at least one; empty when the other end has closed. Raises OSError,
        ValueError and msgspec.DecodeError where what comes is no message."""
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
