"""The requests that went through lately, in memory: what the dashboard lists, and what `explain`
knows by their ids."""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

import msgspec

from proxy.passage import Passage
from proxy.question import Question
from proxy.recollection import Remembered, recollection_of
from proxy.seen import Seen, seen_of

MAX_REQUESTS = 1000
"""Of a process."""
_MAX_BYTES = 16 * 2**20
"""What the requests themselves may take, about."""
_OBJECTS_PER_BYTE = 4
"""What was decoded takes more room than its text."""


class Recent:
    """The last requests of one process to the cached surfaces. Outlives every reload."""

    def __init__(self, *, max_requests: int = MAX_REQUESTS, max_bytes: int = _MAX_BYTES) -> None:
        """`max_bytes`: about how much the requests may take whose words are remembered, too."""
        self._seen: deque[Seen] = deque(maxlen=max_requests)
        self._questions: OrderedDict[str, _Asked] = OrderedDict()
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._num_bytes = 0

    def note(self, passage: Passage) -> None:
        """A passage has ended. See `proxy.passage.Watcher`."""
        if passage.surface is None:
            return
        seen = seen_of(passage)
        self._seen.append(seen)
        question = None if passage.answer is None else passage.answer.question
        if question is not None:
            self._remember(seen, question)

    def latest(self, limit: int) -> tuple[Seen, ...]:
        """Newest first."""
        newest = reversed(self._seen)
        return tuple(one for one, _ in zip(newest, range(limit), strict=False))

    def recollect(self, request_id: str, *, tenant: str | None) -> Remembered | None:
        """What was asked under an id, the last time; None where it is not remembered, or another
        tenant asked it."""
        asked = self._questions.get(request_id)
        if asked is None or tenant not in (None, asked.seen.tenant):
            return None
        return Remembered(seen=asked.seen, asked=recollection_of(asked.question))

    def forget(self, forgets: Callable[[Seen], bool]) -> int:
        """Drop the requests that `forgets` names; how many."""
        gone = [one for one in self._seen if forgets(one)]
        for one in gone:
            self._seen.remove(one)
            self._drop(one.request_id)
        return len(gone)

    def _remember(self, seen: Seen, question: Question) -> None:
        self._drop(seen.request_id)
        size = _OBJECTS_PER_BYTE * len(question.call.body)
        if size > self._max_bytes:
            return
        asked = _Asked(seen=seen, question=question, num_bytes=size)
        self._questions[seen.request_id] = asked
        self._num_bytes += size
        while self._num_bytes > self._max_bytes or len(self._questions) > self._max_requests:
            self._drop(next(iter(self._questions)))

    def _drop(self, request_id: str) -> None:
        asked = self._questions.pop(request_id, None)
        if asked is not None:
            self._num_bytes -= asked.num_bytes


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    seen: Seen
    question: Question
    num_bytes: int


def newest_of(lists: Sequence[Sequence[Seen]], *, limit: int) -> tuple[Seen, ...]:
    """Of several processes, newest first."""
    everything = [one for each in lists for one in each]
    everything.sort(key=lambda one: one.at, reverse=True)
    return tuple(everything[:limit])
