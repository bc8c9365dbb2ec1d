"""The access log: a JSON object a line, for each request to the data port. Neither bodies nor
keys, nor the query, where some put keys."""

from datetime import UTC, datetime

import msgspec

from proxy.observing.lines import Lines
from proxy.observing.seen import Ended, Seen
from proxy.port.passage import Passage


class AccessLine(msgspec.Struct, frozen=True, kw_only=True):
    """What is logged of a request. All that follows from its words is empty where it was refused
    unread, or only passed through."""

    time: str
    """When it arrived: RFC 3339, UTC."""
    request_id: str
    trace_id: str
    """32 hex digits; empty where it is not traced."""
    tenant: str
    method: str
    path: str
    model: str
    """That the upstream is asked for."""
    route: str
    policy: str
    stream: bool
    outcome: str
    """As in `X-Cache`; empty where the cache has no part in it."""
    reasons: tuple[str, ...]
    not_kept: str
    """Why the answer was not kept, in words, where the request would have allowed it."""
    similarity: float | None
    status: int
    """0 where the client left before the answer began."""
    ended: Ended
    bytes: int
    """Of the answer's body."""
    input_tokens: int
    output_tokens: int
    upstream: str
    """That was asked last; empty where none was."""
    attempts: int
    first_ms: float | None
    """Until the answer began."""
    total_ms: float
    phases_ms: dict[str, float]


class AccessLog:
    """Logs each passage. See `proxy.port.passage.Watcher`."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def note(self, passage: Passage) -> None:
        """A passage has ended."""
        self._lines.append(_ENCODER.encode(line_of(passage)) + b"\n")

    async def close(self) -> None:
        """Write what is pending."""
        await self._lines.flush()


def line_of(passage: Passage) -> AccessLine:
    """Of a passage that has ended."""
    seen = _NOTHING if passage.surface is None else passage.seen
    timing = passage.timing
    return AccessLine(
        time=_spelled(passage.arrived_at),
        request_id=passage.request_id,
        trace_id="" if timing.trace is None else f"{timing.trace.trace_id:032x}",
        tenant=passage.tenant or seen.tenant,
        method=passage.method,
        path=passage.path,
        model=seen.model,
        route=seen.route,
        policy=seen.policy,
        stream=seen.stream,
        outcome=seen.outcome,
        reasons=seen.reasons,
        not_kept=seen.not_kept,
        similarity=seen.similarity,
        status=passage.status,
        ended=passage.ended,
        bytes=passage.num_bytes,
        input_tokens=seen.input_tokens,
        output_tokens=seen.output_tokens,
        upstream=timing.legs[-1].upstream if timing.legs else "",
        attempts=len(timing.legs),
        first_ms=None if passage.first_ms is None else round(passage.first_ms, 3),
        total_ms=round(passage.total_ms, 3),
        phases_ms=timing.spent_ms(),
    )


def _spelled(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_NOTHING = Seen(at=0.0, request_id="", surface="", outcome="", ended="left", total_ms=0.0)
_ENCODER = msgspec.json.Encoder()
