"""A request on its way through the data port, for those who look on."""

from collections.abc import Callable
from typing import Literal

import msgspec

from proxy.call import Surface
from proxy.observing.timing import Timing
from proxy.reply import Answer

Ended = Literal["whole", "broken", "left"]


class Passage(msgspec.Struct, kw_only=True):
    """Filled while the request passes: not frozen, unlike what is made of it in the end."""

    request_id: str
    arrived_at: float
    """Unix seconds."""
    timing: Timing
    method: str = ""
    path: str = ""
    """As the client wrote it, without the query."""
    tenant: str = ""
    """Empty until it is known who asks."""
    surface: Surface | None = None
    """None where nothing of it can be kept: what is only passed through."""
    answer: Answer | None = None
    """None where the client left before there was one."""
    status: int = 0
    """0 until the answer began."""
    num_bytes: int = 0
    """Of the answer's body, as far as it was sent."""
    first_ms: float | None = None
    """Until the answer began."""
    total_ms: float = 0.0
    """Until its last byte was sent, or the client had left."""
    ended: Ended = "left"
    """`broken`: the upstream broke off a stream that had begun."""


Watcher = Callable[[Passage], None]
"""Told of each passage when it has ended. Returns at once and never raises."""
