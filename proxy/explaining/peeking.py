"""A store that is looked at and not used."""

from collections.abc import Sequence

from index.entry import Entry
from index.judgement import judge
from index.purges import table_of
from index.store import Examined, Lookup, NotStored, Store, Stored


class Peeking:
    """What a lookup would find, without counting as one. See `proxy.lookup.shelf.Shelf`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, key: str, *, now: float, tags: Sequence[str] = ()) -> Lookup:
        """As `Store.get` would answer."""
        return lookup_of(await self._store.examine(key), now=now, tags=tags)

    async def put(self, entry: Entry) -> Stored | NotStored:
        """Nothing is kept."""
        return NotStored(reason="store_fault")


def lookup_of(examined: Examined, *, now: float, tags: Sequence[str]) -> Lookup:
    """What `Store.get` answers where this is what there is."""
    entry = examined.entry
    if entry is None:
        return Lookup(snapshot=examined.snapshot)
    standing = table_of(examined).standing(entry)
    return judge(entry, standing, snapshot=examined.snapshot, now=now, tags=tags)
