"""Freeing what is purged or expired, in steps small enough that nobody waits long for the writer.

Each step is one job of the writer; it says how many entries it freed and whether more of its kind
is left. Purged entries are found by their tag and by `hard_change`, without looking at others.
"""

import msgspec

from index.purges import RETAIN_S
from index.sqlite.transaction import Transaction
from index.store import ALL

STEP = 100
"""Entries freed, or purges looked at, in one step."""
VACUUM_PAGES = 500
"""Free pages given back to the file system in one step."""

_KEY_PREFIX = "key:"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What a step did."""

    freed: int = 0
    more: bool = False


class Forgetting(msgspec.Struct, frozen=True, kw_only=True):
    """A pass over the purges that may be forgotten; it has come to S = `after`."""

    now: float
    after: int = 0
    done: bool = False


def sweep_expired(transaction: Transaction, *, now: float) -> Step:
    """Free entries past `keep_until`."""
    rows = transaction.rows("WHERE keep_until < ? LIMIT ?", (now, STEP))
    transaction.free(rows)
    return Step(freed=len(rows), more=len(rows) == STEP)


def sweep_purged(transaction: Transaction) -> Step:
    """Free entries that the oldest unswept hard purge covers."""
    purge = transaction.connection.execute(
        "SELECT tag, hard_change FROM purge WHERE swept = 0 ORDER BY sequence LIMIT 1"
    ).fetchone()
    if purge is None:
        return Step()
    tag, hard_change = purge
    rows = transaction.rows(*_covered(tag, hard_change))
    transaction.free(rows)
    if len(rows) < STEP:
        transaction.connection.execute("UPDATE purge SET swept = 1 WHERE tag = ?", (tag,))
    return Step(freed=len(rows), more=True)


def sweep_excess(transaction: Transaction) -> Step:
    """Evict until the file is within its bound, for instance after the bound was lowered."""
    freed = transaction.evict(transaction.excess_bytes(), limit=STEP)
    return Step(freed=freed, more=freed == STEP)


def forget_purges(transaction: Transaction, begun: Forgetting) -> Forgetting:
    """Drop old purges that cover nothing any more, a page of them.

    A hard one covers nothing once it is swept; a soft one once the last entry under it, put before
    it, is gone. The floor rises with them (see `PurgeTable.admits`).
    """
    page = transaction.connection.execute(
        "SELECT tag, sequence, soft, soft_change FROM purge "
        "WHERE sequence > ? AND swept = 1 AND at <= ? ORDER BY sequence LIMIT ?",
        (begun.after, begun.now - RETAIN_S, STEP),
    ).fetchall()
    for tag, sequence, soft, soft_change in page:
        if soft and transaction.rows(*_covered(tag, soft_change, limit=1)):
            continue
        transaction.connection.execute("DELETE FROM purge WHERE tag = ?", (tag,))
        transaction.state.floor = max(transaction.state.floor, sequence)
    if len(page) < STEP:
        return Forgetting(now=begun.now, done=True)
    return Forgetting(now=begun.now, after=page[-1][1])


def shrink(transaction: Transaction) -> Step:
    """Give free pages back to the file system, where the file is larger than its bound."""
    if transaction.file_excess_bytes() <= 0 or not transaction.free_pages():
        return Step()
    transaction.connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
    return Step(more=True)


def _covered(tag: str, change: int, *, limit: int = STEP) -> tuple[str, tuple[object, ...]]:
    """A clause for the entries under a tag that were put up to a change."""
    if tag == ALL:
        return "WHERE id <= ? LIMIT ?", (change, limit)
    if tag.startswith(_KEY_PREFIX):
        return "WHERE key = ? AND id <= ? LIMIT ?", (tag.removeprefix(_KEY_PREFIX), change, limit)
    return (
        "WHERE id IN (SELECT entry_id FROM entry_tag WHERE tag = ? AND entry_id <= ? LIMIT ?)",
        (tag, change, limit),
    )
