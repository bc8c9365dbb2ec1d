"""From a line of an export back to an entry in the store."""

import msgspec

from index.entry import Entry, Snapshot
from index.errors import StoreFault
from index.store import NotStored, Store
from proxy.transfer.line import Mark, Unreadable, read
from proxy.transfer.tally import Fate, Kind, refused

_OTHER_PURGES = (
    "what was purged since the export is not known: "
    "the store began its purges anew, or is older than the export"
)
_REASONS = {
    "purged": "it was purged after it was made",
    "too_large": "it is larger than the store keeps",
    "generation": _OTHER_PURGES,
}


class Importer:
    """One import. Entries keep the state of purges under which they were made, so that nothing
    comes back that this store has purged since.

    That state means something only to the counters that it was taken from. Where those are gone or
    were set back, entries are refused, unless the operator vouches for them (`as_of_now`): they
    are then held for valid at the beginning of the import, and covered by every later purge.
    """

    def __init__(self, store: Store, *, start: Snapshot, as_of_now: bool) -> None:
        """`start`: the state of purges when the import began."""
        self._store = store
        self._start = start
        self._as_of_now = as_of_now

    async def take(self, text: bytes, *, now: float) -> Fate:
        """Store the entry of one line, unless something speaks against it."""
        entry = read(text, secret=self._store.secret)
        match entry:
            case Mark():
                return Fate(kind=Kind.MARK)
            case Unreadable(reason=reason):
                return refused(reason)
        if entry.keep_until <= now:
            return Fate(kind=Kind.EXPIRED)
        if not self._knows(entry.snapshot):
            if not self._as_of_now:
                return refused(_OTHER_PURGES)
            entry = msgspec.structs.replace(entry, snapshot=self._start)
        try:
            return await self._put(entry, now)
        except StoreFault as fault:
            return refused(f"the store failed: {fault}")

    def _knows(self, snapshot: Snapshot) -> bool:
        """It was taken from this store's counters, as they are now or were before."""
        start = self._start
        return snapshot.generation == start.generation and snapshot.sequence <= start.sequence

    async def _put(self, entry: Entry, now: float) -> Fate:
        there = (await self._store.get(entry.key, now=now)).entry
        if there is not None and there.created_at >= entry.created_at:
            return Fate(kind=Kind.PRESENT)
        done = await self._store.put(entry)
        if isinstance(done, NotStored):
            return refused(_REASONS.get(done.reason, done.reason))
        return Fate(kind=Kind.STORED)
