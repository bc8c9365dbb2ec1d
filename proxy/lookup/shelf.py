"""What of a store the cache works with: the whole of one, or one that is only looked at."""

from collections.abc import Sequence
from typing import Protocol

from index.entry import Entry
from index.store import Lookup, NotStored, Stored


class Shelf(Protocol):
    """What of a store the cache works with (`index.store.Store`)."""

    async def get(self, key: str, *, now: float, tags: Sequence[str] = ()) -> Lookup:
        """See `Store.get`."""
        ...

    async def put(self, entry: Entry) -> Stored | NotStored:
        """See `Store.put`."""
        ...
