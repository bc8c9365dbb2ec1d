"""A TCP relay between a store and its Redis, for what networks and failovers do."""

import asyncio
import contextlib


class Relay:
    """Forwards each connection to `target`, a port of this machine, while it is `open`."""

    def __init__(self, target):
        self.target = target
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._tasks = set()
        self._writers = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.hang_up()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def hang_up(self):
        """Cut all connections."""
        for writer in self._writers:
            writer.transport.abort()

    def fail_over(self, target):
        """As an address does that is given to another server."""
        self.target = target
        self.hang_up()

    async def _accept(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            there, away = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.add(away)
            await asyncio.gather(self._pump(reader, away), self._pump(there, writer))

    async def _pump(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(2**16):
                await self.flowing.wait()
                writer.write(data)
        writer.transport.abort()
