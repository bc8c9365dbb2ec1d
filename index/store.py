"""The border behind which entries live: memory, SQLite, Redis.

Contract of purges (one suite in `tests/index/` runs over every store):

- The store has one counter S of purges. A purge sets S := S + 1 and last_purge[tag] := S at once.
- A request takes a `Snapshot` (from `get` or `snapshot`) before it is forwarded; its entry carries
  it.
- An entry is valid only while it has the store's generation and last_purge[tag] <= its sequence for
  each of its tags, and for the two tags that every entry has without naming them: `key:<its key>`
  and `ALL`. So a purge costs the same however much it covers, and covers what is still being made.
- When `purge` has returned, no `get` that starts later, in any process that shares the store,
  returns an entry that the purge covers.
- A soft purge counts in S too. It leaves what is stored as stale, and what was being made when it
  came is not stored at all.

No method reads a clock: the caller passes `now` (Unix seconds).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from index.entry import Entry, Snapshot
from index.errors import InvalidCursor
from index.lease import Leases
from index.nearest.vectorplace import VectorPlace

_MAX_CURSOR_DIGITS = 18
"""SQLite's numbers have 64 bits."""

ALL = "*"
"""Every entry carries this tag without naming it; purging it purges everything."""


class Mark(msgspec.Struct, frozen=True):
    """When a tag was last purged: the values of S, 0 for never."""

    hard: int
    soft: int

    @property
    def sequence(self) -> int:
        """The later of the two."""
        return max(self.hard, self.soft)


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows of a key.

    `entry` is None when there is none, or none that may still be used; `reason` then says which.
    An entry past `expires_at` but not past `keep_until` is returned: freshness is the caller's.
    `soft_purged`: the entry may only be served where the policy allows stale answers.
    `snapshot` is what an entry made after this lookup has to carry.
    `tags`: with `lacks_tag`, those of the entry that is there; the new one carries the union.
    """

    snapshot: Snapshot
    entry: Entry | None = None
    soft_purged: bool = False
    reason: str = "absent"
    """`fresh` | `soft_purged` | `absent` | `purged` | `expired` (past keep_until) | `lacks_tag` |
    `store_fault`."""
    tags: tuple[str, ...] = ()


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What there is under a key, usable or not, and which purges there were.

    `entry` is None once it was freed. `marks`: the last purges of the tags asked for, of the
    entry's own, of its key and of everything, as far as they are not forgotten.
    """

    snapshot: Snapshot
    entry: Entry | None
    marks: dict[str, Mark]


class Purge(msgspec.Struct, frozen=True, kw_only=True):
    """What to purge. `models` and `tenants` are purged through their implicit tags."""

    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    everything: bool = False
    soft: bool = False
    dry_run: bool = False


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """`matched`: live answers covered (None: too many to count in time; a dry run always counts).
    `entries`: freed now. `sequence`: S after the purge (unchanged by a dry run)."""

    matched: int | None
    entries: int
    sequence: int


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries `scan` shows: all given parts must hold. `text` is a part of the prompt."""

    tag: str | None = None
    model: str | None = None
    tenant: str | None = None
    text: str | None = None
    scope: str | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a scan; `cursor` continues it, None at the end."""

    entries: tuple[Entry, ...]
    cursor: str | None


def place_of(cursor: str | None) -> int | None:
    """The number of the change before which a scan goes on. Raises InvalidCursor."""
    if cursor is None:
        return None
    if len(cursor) > _MAX_CURSOR_DIGITS or not (cursor.isascii() and cursor.isdigit()):
        raise InvalidCursor(f"{cursor[:80]!r} is no cursor of a scan")
    return int(cursor)


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What happened since a cursor: the feed that keeps each worker's vector index in step.

    Apply `deleted` before `put`. A put of a key that is known replaces it; purged entries stay in
    the feed until they are freed (`get` refuses them). `cursor` is opaque but for 0, the beginning;
    the same cursor as before means that there is nothing more.
    `reset`: too much happened, or the store began anew; forget everything and start at cursor 0.
    """

    put: tuple[Entry, ...]
    deleted: tuple[str, ...]
    cursor: int
    reset: bool = False


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """The entry is in the store and survives what the store survives."""

    evicted: int = 0


class NotStored(msgspec.Struct, frozen=True, kw_only=True):
    """`reason`: `purged` (meanwhile) | `too_large` | `generation` | `store_fault`."""

    reason: str


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes now. `entries` counts what is held, swept or not."""

    entries: int
    memory_bytes: int
    disk_bytes: int
    sequence: int
    evictions: int


class Store(Protocol):
    """All methods raise `StoreFault` when the store fails; the caller treats that as a miss."""

    secret: bytes
    """Made with the store, shared by all who use it; never shown. Keys are keyed with it, so that
    a key in a header tells a stranger nothing."""

    leases: Leases
    """Who of those that share the store makes what."""

    async def get(self, key: str, *, now: float, tags: Sequence[str] = ()) -> Lookup:
        """Look a key up. An entry that lacks one of `tags` is not returned (`lacks_tag`)."""
        ...

    async def examine(self, key: str, *, tags: Sequence[str] = ()) -> Examined:
        """Look at a key without using it: nothing is counted, nothing comes into memory."""
        ...

    async def snapshot(self) -> Snapshot:
        """The state of purges now, for a request that does not read but may write."""
        ...

    async def put(self, entry: Entry) -> Stored | NotStored:
        """Store an entry, unless one of its tags was purged after its snapshot was taken."""
        ...

    async def delete(self, key: str) -> bool:
        """Free one entry now; True if there was one. Unlike a purge, this does not cover what is
        still being made."""
        ...

    async def purge(self, purge: Purge, *, now: float) -> Purged:
        """Purge; durable when it returns. A dry run counts exactly and changes nothing."""
        ...

    async def scan(self, where: Filter, *, now: float, cursor: str | None, limit: int) -> Page:
        """Live entries that match, newest first, a page at a time."""
        ...

    async def changes(self, cursor: int, *, limit: int) -> Changes:
        """What was put and deleted after `cursor`, oldest first; cursor 0 is the beginning."""
        ...

    async def tally(self, name: str, add: Mapping[str, int]) -> dict[str, int]:
        """Add to the counters of a name, which all who use the store share, and return all of them.

        Counters begin at 0, are made by being added to, and outlive purges; one that comes to 0 or
        less is forgotten. `add` may be empty.
        """
        ...

    def vectors(self, *, identity: str, dimension: int) -> VectorPlace | None:
        """Where the vectors of this embedder's entries are kept with the entries; None where each
        process has to keep them."""
        ...

    async def sweep(self, *, now: float) -> int:
        """Free what is purged or past `keep_until`; entries freed. Called now and then."""
        ...

    async def scrub(self) -> bool:
        """Leave nothing readable of what was freed, as far as the store reaches. False where
        others were at it for too long: to be tried again."""
        ...

    async def stats(self) -> StoreStats:
        """Sizes now."""
        ...

    async def close(self) -> None:
        """Write out what is pending and release files and connections. Idempotent."""
        ...
