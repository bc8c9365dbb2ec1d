"""Errors of upstreams as clients may see them: readable by SDKs, and without anybody's key."""

from collections.abc import Iterable

import msgspec

from proxy.answer.grammar import READ_FAULTS
from proxy.errors import error_body
from proxy.upstreams.base import UpstreamResponse
from proxy.upstreams.body import Buffered

MAX_ERROR_BYTES = 2**20
"""Of a longer error the rest is not read."""

_LONGEST_QUOTE = 500
_SHORTEST_SECRET = 8
"""Shorter ones are words that may stand in a text by chance, and protect nothing."""
_REPLACED = frozenset({b"content-type", b"content-length"})


async def readable(
    response: UpstreamResponse, *, secrets: Iterable[bytes], is_head: bool
) -> UpstreamResponse:
    """A response of status 400 and above, read whole and given back.

    A body that is no JSON (a balancer's page) becomes OpenAI's shape, with its text where that is
    short and plain. `secrets` that were sent are cut out of body and headers: several clients may
    wait for this answer. Raises `UpstreamError` when it breaks.
    """
    body = await _beginning(response)
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            body = body.replace(secret, b"***")
            response.headers = tuple((n, v.replace(secret, b"***")) for n, v in response.headers)
    if is_head:
        return response
    kind = response.content_type
    if not _is_json(body):
        text = _quote(body) if kind == b"text/plain" else ""
        message = text or f"The upstream answered with status {response.status} and no more."
        body, kind = error_body(message, kind="upstream_error"), b"application/json"
    kept = [pair for pair in response.headers if pair[0] not in _REPLACED]
    kept += [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
    response.headers = tuple(kept)
    response.body = Buffered(body)
    return response


async def _beginning(response: UpstreamResponse) -> bytes:
    pieces: list[bytes] = []
    num_bytes = 0
    try:
        async for piece in response.body:
            pieces.append(piece)
            num_bytes += len(piece)
            if num_bytes > MAX_ERROR_BYTES:
                break
    finally:
        await response.body.aclose()
    return b"".join(pieces)


def _is_json(body: bytes) -> bool:
    try:
        _ANY.decode(body)
    except READ_FAULTS:
        return False
    return True


def _quote(body: bytes) -> str:
    text = body[: _LONGEST_QUOTE + 1].decode(errors="replace").strip()
    return text if len(text) <= _LONGEST_QUOTE else ""


_ANY = msgspec.json.Decoder()
