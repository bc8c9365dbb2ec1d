"""Reading on the event loop: is the memory tier still in step with the file, and single entries."""

import sqlite3

import msgspec

from index import record
from index.entry import Entry
from index.purges import PurgeTable
from index.sqlite.state import State, read_marks, read_secret, read_state
from index.sqlite.tallying import read_tally
from index.tier import Tier

MAX_BEHIND = 4096
"""After more changes than that the memory tier is emptied instead of compared."""


class Found(msgspec.Struct, frozen=True):
    """An entry in the file."""

    change: int
    entry: Entry


class Reader:
    """Owns a reading connection, the purge table, and what the tier may hold.

    `PRAGMA data_version` (a few us) tells whether any process has committed since; only then is the
    file read: purges newer than the table's, and the keys that were changed, whose entries leave
    the tier unless they are the new ones. All in one read transaction, so that the two agree.
    """

    def __init__(self, connection: sqlite3.Connection, tier: Tier) -> None:
        self._connection = connection
        self.secret = read_secret(connection)
        self._probe = connection.cursor()
        self._tier = tier
        self._version: int | None = None
        self.state: State
        """The counters of the file as `catch_up` saw them last."""
        self._change: int | None = None
        """The last change that the tier was compared with; None while it is new and empty."""
        self.purges = PurgeTable(generation="", floor=-1)  # unlike any: the first look reads all
        self.catch_up()

    def catch_up(self) -> None:
        """Know all that was committed, by any process, before this call."""
        (version,) = self._probe.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return
        self._connection.execute("BEGIN")
        try:
            state = read_state(self._connection)
            if state.floor != self.purges.floor:
                self._reload(state)
            elif state.sequence != self.purges.sequence:
                self.purges.marks.update(read_marks(self._connection, after=self.purges.sequence))
                self.purges.advance(state.sequence)
            if self._change is not None and state.change != self._change:
                self._drop_changed(state, after=self._change)
            self._change = state.change
            self.state = state
        finally:
            self._connection.rollback()  # ends the read transaction, whatever happened
        self._version = version

    def load(self, key: str) -> Found | None:
        """The entry of a key; None for none, or none that can be read."""
        row = self._probe.execute(
            "SELECT entry.id, record FROM entry JOIN body USING (id) WHERE key = ?", (key,)
        ).fetchone()
        if row is None:
            return None
        entry = record.decode(row[1])
        return Found(row[0], entry) if entry is not None and entry.key == key else None

    def tally(self, name: str) -> dict[str, int]:
        """All counters of a name, as any process has committed them."""
        return read_tally(self._connection, name)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _reload(self, state: State) -> None:
        """Some purges were forgotten. What they cover is freed, and so leaves the tier as well."""
        table = state.table()
        table.marks = read_marks(self._connection, after=0)
        self.purges = table

    def _drop_changed(self, state: State, *, after: int) -> None:
        if state.change - after > MAX_BEHIND or after < state.forgotten_change:
            self._tier.clear()
            return
        self._drop_older("SELECT id, key FROM entry WHERE id > ?", after)
        if state.last_deletion > after:
            self._drop_older("SELECT change, key FROM deletion WHERE change > ?", after)

    def _drop_older(self, changed: str, after: int) -> None:
        for change, key in self._connection.execute(changed, (after,)):
            held = self._tier.get(key)
            if held is not None and held.change < change:
                self._tier.drop(key)
