"""Questions to one engine of several upstreams."""

from collections.abc import Awaitable
from typing import TypeVar

from proxy.errors import ClientError, UpstreamUnreachable

T = TypeVar("T")


async def told(asking: Awaitable[T | None]) -> T:
    """What the engine says. Raises ClientError: 503 where it is down, 404 where there is none."""
    try:
        answer = await asking
    except UpstreamUnreachable as error:
        raise ClientError(503, f"The engine is not there: {error}.", kind="server_error") from error
    if answer is None:
        raise ClientError(
            404,
            "No upstream of that name runs an engine; without a name there must be one that does.",
            param="upstream",
        )
    return answer
