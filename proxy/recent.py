"""The requests that went through lately, in memory: what the dashboard lists, and what `explain`
knows by their ids."""

from collections import OrderedDict, deque
from collections.abc import Collection, Sequence

import msgspec

from proxy.journal.erasure import Erasure, without_words
from proxy.passage import Passage
from proxy.question import Question
from proxy.recollection import Remembered, recollection_of
from proxy.seen import Seen

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
        self._questions: OrderedDict[tuple[str, str], _Asked] = OrderedDict()
        """By tenant and id: clients choose their ids."""
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._num_bytes = 0

    def note(self, passage: Passage, *, gone: Collection[str] = ()) -> None:
        """A passage has ended. `gone`: keys of erased answers, whose questions are left out."""
        if passage.surface is None:
            return
        seen = without_words(passage.seen, gone)
        self._seen.append(seen)
        question = None if passage.answer is None else passage.answer.question
        if question is not None and not question.call.directives.no_store:
            self._remember(seen, question)

    def latest(self, limit: int) -> tuple[Seen, ...]:
        """Newest first."""
        newest = reversed(self._seen)
        return tuple(one for one, _ in zip(newest, range(limit), strict=False))

    def recollect(self, request_id: str, *, tenant: str | None) -> Remembered | None:
        """What was asked under an id, the last time; None where it is not remembered, or not
        asked by `tenant`, or where no tenant is given and several have asked under the id."""
        asked = self._asked(request_id, tenant=tenant)
        if asked is None:
            return None
        return Remembered(seen=asked.seen, asked=recollection_of(asked.question))

    def forget(self, erasure: Erasure) -> int:
        """Drop the requests that it covers, and its words out of the others; how many went."""
        before = len(self._seen)
        left = [one for one in self._seen if not erasure.covers(one)]
        self._seen.clear()
        self._seen.extend(without_words(one, erasure.keys) for one in left)
        # Not only those that are still listed: a request's words may be remembered for longer.
        for name, asked in list(self._questions.items()):
            seen = without_words(asked.seen, erasure.keys)
            if erasure.covers(seen):
                self._drop(name)
            elif seen is not asked.seen:
                self._questions[name] = msgspec.structs.replace(asked, seen=seen)
        return before - len(left)

    def _asked(self, request_id: str, *, tenant: str | None) -> "_Asked | None":
        asked = [
            one
            for (whose, name), one in self._questions.items()
            if name == request_id and tenant in (None, whose)
        ]
        return asked[0] if len(asked) == 1 else None

    def _remember(self, seen: Seen, question: Question) -> None:
        self._drop(_name(seen))
        size = _OBJECTS_PER_BYTE * len(question.call.body)
        if size > self._max_bytes:
            return
        asked = _Asked(seen=seen, question=question, num_bytes=size)
        self._questions[_name(seen)] = asked
        self._num_bytes += size
        while self._num_bytes > self._max_bytes or len(self._questions) > self._max_requests:
            self._drop(next(iter(self._questions)))

    def _drop(self, name: tuple[str, str]) -> None:
        asked = self._questions.pop(name, None)
        if asked is not None:
            self._num_bytes -= asked.num_bytes


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    seen: Seen
    question: Question
    num_bytes: int


def _name(seen: Seen) -> tuple[str, str]:
    return seen.tenant, seen.request_id


def newest_of(lists: Sequence[Sequence[Seen]], *, limit: int) -> tuple[Seen, ...]:
    """Of several processes, newest first."""
    everything = [one for each in lists for one in each]
    everything.sort(key=place_of, reverse=True)
    return tuple(everything[:limit])


def place_of(one: Seen) -> tuple[float, str]:
    """In the list of all processes: the greatest is the newest."""
    return one.at, one.request_id
