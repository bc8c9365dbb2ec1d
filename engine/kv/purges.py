"""What was purged, and what of it a request may not know. Plain Python.

The store of the proxy counts purges (`Moment`). A request carries the count of its arrival, a purge
its own. So the engine can tell three things without a clock: that a request came before a purge of
one of its tags, so that its pages must not be kept; that purges were made of which it was not told
(by another replica, or while it was away), so that nothing it keeps can be trusted; and that what
it finds on disk is as fresh as its own memory would be. A purge by another replica is always of the
second kind: it costs all pages here, where one of our own costs those of its tags.
"""

from collections.abc import Iterable

import msgspec

from engine.process.protocol import Moment

Tags = frozenset[str] | None
"""Of a page: every request that used it depended on these. None: on more than can be kept."""

MAX_TAGS = 256
_MAX_REMEMBERED = 65536


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What a purge covers."""

    tags: frozenset[str] = frozenset()
    everything: bool = False

    def covers(self, tags: Tags) -> bool:
        if self.everything:
            return True
        return bool(self.tags) if tags is None else not self.tags.isdisjoint(tags)


EVERYTHING = Scope(everything=True)


def merged(tags: Tags, more: Tags) -> Tags:
    """Those of a page that several requests used."""
    if tags is None or more is None:
        return None
    union = tags | more
    return union if len(union) <= MAX_TAGS else None


class PurgeLog:
    """The purges that the engine was told of."""

    def __init__(self, known: Moment | None = None) -> None:
        """`known`: the last one that what was found on disk has seen."""
        self.known = known
        self.is_confirmed = False
        """Something came from the proxy since the start, so `known` is not merely remembered."""
        self._last: dict[str, int] = {}
        self._floor = 0

    def hear(self, moment: Moment) -> bool:
        """A request of that time came. False: purges were made that nobody told of; then whoever
        asks forgets everything."""
        is_told = self._is_told(moment.generation, moment.sequence)
        self._confirm(moment, is_told=is_told)
        return is_told

    def note(self, scope: Scope, moment: Moment) -> bool:
        """A purge, the `moment.sequence`-th. False: as with `hear`, others were made before it."""
        is_told = self._is_told(moment.generation, moment.sequence - 1)
        self._confirm(moment, is_told=is_told)
        if scope.everything:
            self._floor = max(self._floor, moment.sequence)
        self._remember(scope.tags, moment.sequence)
        return is_told

    def allows(self, tags: Tags, moment: Moment | None) -> bool:
        """Whether pages of a request of that time may be kept."""
        if moment is None:
            return True
        if self.known is None or moment.generation != self.known.generation:
            return False
        since = moment.sequence
        if tags is None:
            return since >= self.known.sequence
        return since >= self._floor and all(self._last.get(tag, 0) <= since for tag in tags)

    def _is_told(self, generation: str, sequence: int) -> bool:
        known = self.known
        if known is None:
            return True
        return known.generation == generation and known.sequence >= sequence

    def _confirm(self, moment: Moment, *, is_told: bool) -> None:
        self.is_confirmed = True
        known = self.known
        if known is None or known.generation != moment.generation:
            self.known = moment
            self._last.clear()
        elif moment.sequence > known.sequence:
            self.known = moment
        if not is_told:
            self._floor = moment.sequence

    def _remember(self, tags: Iterable[str], sequence: int) -> None:
        for tag in tags:
            # Taken out first, so that what was purged longest ago stands first.
            self._last.pop(tag, None)
            self._last[tag] = sequence
        while len(self._last) > _MAX_REMEMBERED:
            oldest = next(iter(self._last))
            self._floor = max(self._floor, self._last.pop(oldest))
