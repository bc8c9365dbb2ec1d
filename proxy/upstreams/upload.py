"""The body of a request that is passed on while it comes."""

from collections.abc import AsyncIterator

from proxy.errors import ClientLeft


class Upload:
    """Pieces of a body. That a client leaves amid them is not the fault of the server they go to:
    its connection breaks by that, and what it says of it would be held against it."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self.fault: ClientLeft | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._pieces.__anext__()
        except ClientLeft as fault:
            self.fault = fault
            raise
