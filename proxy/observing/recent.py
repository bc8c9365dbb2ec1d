"""The requests that went through lately, in memory: what the dashboard lists, and what `explain`
knows by their ids."""

import itertools
from collections import deque
from collections.abc import Collection, Sequence

from proxy.journal.erasure import Erasure, without_words
from proxy.observing.recollection import Remembered, last_of_each, recollection_of
from proxy.observing.seen import Seen
from proxy.port.passage import Passage
from proxy.question import Question

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
        self._passed: deque[Passage] = deque(maxlen=max_requests)
        self._worded: deque[Passage] = deque()
        """Whose words are remembered: no others than were `_passed`, and in the same order, but
        words may be remembered for longer than the passage is listed."""
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._num_bytes = 0

    def note(self, passage: Passage, *, gone: Collection[str] = ()) -> None:
        """A passage has ended, and is taken over. `gone`: keys of erased answers, whose questions
        are left out."""
        if passage.surface is None:
            return
        passage.let_go()
        if gone:
            passage.tell(without_words(passage.seen, gone))
        self._passed.append(passage)
        question = passage.question
        if question is None:
            return
        size = _size_of(question)
        if question.call.directives.no_store or size > self._max_bytes:
            passage.forget_question()
            return
        self._worded.append(passage)
        self._num_bytes += size
        while self._num_bytes > self._max_bytes or len(self._worded) > self._max_requests:
            self._forget_oldest()

    def latest(self, limit: int) -> tuple[Seen, ...]:
        """Newest first."""
        return tuple(one.seen for one in itertools.islice(reversed(self._passed), limit))

    def recollect(self, request_id: str, *, tenant: str | None) -> tuple[Remembered, ...]:
        """What was asked under an id, by `tenant` where one is given: the last time by each caller,
        since clients choose their ids."""
        return last_of_each(
            Remembered(seen=one.seen, asked=recollection_of(one.question))
            for one in self._worded
            if one.request_id == request_id
            and one.question is not None
            and tenant in (None, one.question.call.caller.tenant)
        )

    def forget(self, erasure: Erasure) -> int:
        """Drop the requests that it covers, and its words out of the others; how many went."""
        before = len(self._passed)
        for those in (self._passed, self._worded):
            left = [one for one in those if not erasure.covers(one.seen)]
            those.clear()
            those.extend(left)
            for one in left:
                one.tell(without_words(one.seen, erasure.keys))
        self._num_bytes = sum(_size_of(one.question) for one in self._worded)
        return before - len(self._passed)

    def _forget_oldest(self) -> None:
        oldest = self._worded.popleft()
        self._num_bytes -= _size_of(oldest.question)
        if len(self._worded) < self._max_requests:  # else it is listed no more
            oldest.forget_question()


def _size_of(question: Question | None) -> int:
    return 0 if question is None else _OBJECTS_PER_BYTE * len(question.call.body)


def newest_of(lists: Sequence[Sequence[Seen]], *, limit: int) -> tuple[Seen, ...]:
    """Of several processes, newest first."""
    everything = [one for each in lists for one in each]
    everything.sort(key=place_of, reverse=True)
    return tuple(everything[:limit])


def place_of(one: Seen) -> tuple[float, str]:
    """In the list of all processes: the greatest is the newest."""
    return one.at, one.request_id
