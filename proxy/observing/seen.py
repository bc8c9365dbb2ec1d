"""What is told of a request that went through: in the list of recent ones and the request log."""

from typing import Literal

import msgspec

from proxy.outcome import Near

Ended = Literal["whole", "broken", "left"]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a cached surface. Neither its body nor its answer, nor any credential."""

    at: float
    """When it arrived; Unix seconds."""
    request_id: str
    surface: str
    outcome: str
    """As in `X-Cache`; `left` where the client hung up before there was an answer."""
    reasons: tuple[str, ...] = ()
    """Why it was not answered from the cache."""
    not_kept: str = ""
    """Why the answer was not kept, in words, where the request would have allowed it."""
    status: int = 0
    """0 where the client left before the answer began."""
    ended: Ended
    tenant: str = ""
    """Empty, as all that follows from the request's words, where it was refused unread."""
    model: str = ""
    """That the upstream is asked for."""
    route: str = ""
    policy: str = ""
    stream: bool = False
    key: str = ""
    scope: str = ""
    matched: str = ""
    """Key of the stored answer that was served."""
    similarity: float | None = None
    """Of a hit by meaning."""
    near: tuple[Near, ...] = ()
    """Stored questions that were near and whose answer was not given."""
    input_tokens: int = 0
    """Of the answer, wherever it came from; 0 where nobody counted."""
    output_tokens: int = 0
    subjects: tuple[str, ...] = ()
    """Digests of the users that it names (`proxy.tenancy.subjects`)."""
    first_ms: float | None = None
    """Until the answer began."""
    total_ms: float
    phases_ms: dict[str, float] = msgspec.field(default_factory=dict)
    """Where the time went; `upstream` is absent where none was asked."""
