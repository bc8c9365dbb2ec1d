"""From the raw request to a question: received, decoded, decided.

An exact hit is by its nature a request that was here before, mostly byte for byte. What was decided
of such a request holds as long as the config does, so it is remembered, within bounds.
"""

from collections.abc import Callable

import msgspec

from proxy.call import Headers, Surface
from proxy.deciding import Decider
from proxy.observing.timing import Timing
from proxy.port.asgi import Receive, Scope
from proxy.port.receiving import Receiver, read_body
from proxy.question import Question
from proxy.request.passing import Passing
from proxy.tenancy.quotas import Quotas
from proxy.tenancy.tenants import Identity

_LONGEST_BYTES = 16 * 2**10
"""Of a request that is remembered: its body, query and headers together."""
_MAX_HEADER_SETS = 512
_OBJECTS_PER_BYTE = 4
"""What was decoded takes more room than its text."""
_OBJECTS_BYTES = 4096
"""Of a question and its call, whatever they hold."""


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered under one set of headers, without those that are new each time."""

    identity: Identity
    questions: dict[tuple[str, bytes, bytes], Question]
    """By path, query and body."""


class Intake:
    """The way in of one config."""

    def __init__(
        self,
        receiver: Receiver,
        decider: Decider,
        *,
        quotas: Quotas,
        passing: Passing,
        max_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        """`passing`: what is new in each request and decides nothing. `max_bytes`: about how much
        may be remembered; 0 for nothing."""
        self._receiver = receiver
        self._decider = decider
        self._quotas = quotas
        self._passing = passing
        self._max_bytes = max_bytes
        self._clock = clock
        self._known: dict[Headers, _Known] = {}
        self._known_bytes = 0

    async def question(
        self,
        surface: Surface,
        path: str,
        scope: Scope,
        receive: Receive,
        *,
        request_id: str,
        timing: Timing,
    ) -> Question:
        """Receive a request and decide on it. Raises ClientError, ClientLeft."""
        headers: Headers = tuple(scope["headers"])
        lasting = self._lasting(headers)
        known = self._known.get(lasting)
        identity = self._receiver.admit(headers) if known is None else known.identity
        grant = self._quotas.admit(identity.caller.tenant)
        body = await read_body(receive, headers, max_bytes=self._receiver.max_body_bytes)
        place = path, scope["query_string"], body
        before = None if known is None else known.questions.get(place)
        if before is not None:
            call = msgspec.structs.replace(
                before.call,
                request_id=request_id,
                headers=headers,
                received_at=self._clock(),
                grant=grant,
                timing=timing,
            )
            return msgspec.structs.replace(before, call=call)
        call = self._receiver.decode(
            surface,
            path,
            scope["query_string"],
            headers,
            body,
            identity=identity,
            request_id=request_id,
            grant=grant,
            timing=timing,
        )
        question = self._decider.decide(call)
        self._remember(lasting, identity, place, question)
        return question

    def forget(self) -> None:
        """Drop what is remembered of requests."""
        self._known.clear()
        self._known_bytes = 0

    def _lasting(self, headers: Headers) -> Headers:
        """Those that would be the same if it were asked again. Raises ClientError where there are
        too many and nothing else would notice."""
        if headers in self._known:
            return headers
        lasting = self._passing.without(headers)
        if lasting in self._known:
            self._receiver.measure(headers)
        return lasting

    def _remember(
        self,
        headers: Headers,
        identity: Identity,
        place: tuple[str, bytes, bytes],
        question: Question,
    ) -> None:
        path, query, body = place
        size = len(path) + len(query) + len(body)
        size += sum(len(name) + len(value) for name, value in headers)
        if size > _LONGEST_BYTES:
            return
        size = _OBJECTS_PER_BYTE * size + _OBJECTS_BYTES
        if self._known_bytes + size > self._max_bytes or len(self._known) >= _MAX_HEADER_SETS:
            # Begun anew, which costs the requests of now one more reading each.
            self._known.clear()
            self._known_bytes = 0
        known = self._known.get(headers)
        if known is None:
            known = self._known[headers] = _Known(identity=identity, questions={})
        known.questions[place] = question
        self._known_bytes += size
