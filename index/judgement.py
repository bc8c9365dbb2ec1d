"""Whether an entry that was found may be used: the one decision that every store shares. Pure."""

from collections.abc import Sequence

from index.entry import Entry, Snapshot
from index.purges import Standing
from index.store import Lookup


def judge(
    entry: Entry,
    standing: Standing,
    *,
    snapshot: Snapshot,
    now: float,
    tags: Sequence[str],
) -> Lookup:
    """What `Store.get` answers for an entry under the asked key; `standing` is after all purges."""
    if standing == "purged":
        return Lookup(snapshot=snapshot, reason="purged")
    if now > entry.keep_until:
        return Lookup(snapshot=snapshot, reason="expired")
    if tags and not set(tags).issubset(entry.tags):
        return Lookup(snapshot=snapshot, reason="lacks_tag", tags=entry.tags)
    return Lookup(
        snapshot=snapshot, entry=entry, soft_purged=standing == "soft_purged", reason=standing
    )
