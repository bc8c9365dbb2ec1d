"""What is waited for before anything is promised to the client: a stream's first event, or the
whole of a plain answer.

A server can answer 200 and tell its error in the first event, or fail in the middle of a body.
Until then the request can still go to another upstream, or get a real status.
"""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import msgspec

from proxy.answer.grammar import READ_FAULTS
from proxy.answer.sse import EventParser, frame_data, frame_event
from proxy.errors import UpstreamBroken, error_body
from proxy.upstreams.base import UpstreamResponse
from proxy.upstreams.body import Buffered, Held

COMMIT_AFTER_S = 10.0
"""A stream without a first event is passed on after this time, so that its client gets headers and
signs of life."""

MAX_WHOLE_BYTES = 32 * 2**20
"""Of a longer plain answer only the beginning is waited for."""

_STATUS_BY_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
}
_JSON = (b"content-type", b"application/json")
_OF_THE_STREAM = frozenset({b"content-type", b"content-length", b"cache-control"})


async def settled(response: UpstreamResponse) -> UpstreamResponse:
    """The answer once it is known to be good, as far as that can be known: `opened` for streams,
    `whole` for all else. Raises `UpstreamError`."""
    if response.content_type == b"text/event-stream" and response.status == 200:
        return await opened(response)
    return await whole(response)


async def whole(
    response: UpstreamResponse, *, max_bytes: int = MAX_WHOLE_BYTES
) -> UpstreamResponse:
    """The same answer once its body is there, or more than `max_bytes` of it. Raises
    `UpstreamError` when it breaks before, or is JSON that was cut where only itself can tell."""
    pieces: list[bytes] = []
    num_bytes = 0
    try:
        async for piece in response.body:
            pieces.append(piece)
            num_bytes += len(piece)
            if num_bytes > max_bytes:
                response.body = Held(pieces, response.body)
                return response
    except BaseException:
        await response.body.aclose()
        raise
    data = b"".join(pieces)
    response.body = Buffered(data)
    if response.status == 200 and not response.delimited and _is_cut(response.content_type, data):
        text = f"upstream {response.upstream}: its answer is not whole"
        raise UpstreamBroken(text, upstream=response.upstream)
    return response


async def opened(
    response: UpstreamResponse, *, commit_after_s: float = COMMIT_AFTER_S
) -> UpstreamResponse:
    """The same answer once its first event has come; or, when that is an error, the answer with the
    status that the error should have had. No bytes are lost.

    Raises `UpstreamError` when it breaks before its first event. Other answers than good streams
    are returned as they are.
    """
    if response.status != 200 or response.content_type != b"text/event-stream":
        return response
    body = _Opening(response)
    response.body = body
    try:
        first = await body.first_event(asyncio.get_running_loop().time() + commit_after_s)
    except BaseException:
        await body.aclose()
        raise
    error = _error_in(first)
    if error is None:
        return response
    await body.aclose()
    return _refusal(response, error)


def _is_cut(content_type: bytes, data: bytes) -> bool:
    """JSON that does not come to its end. Anything else that is wrong with it is the client's to
    judge, so it is read as leniently as can be."""
    if content_type != b"application/json":
        return False
    try:
        _LENIENT.raw_decode(data.decode("utf-8-sig", "replace").lstrip())
    except RecursionError:
        return False
    except ValueError:
        return True
    return False


class _Opening(Held):
    """A body that was read ahead."""

    def __init__(self, response: UpstreamResponse) -> None:
        super().__init__((), response.body)
        self._upstream = response.upstream
        self._read: asyncio.Task[bytes] | None = None

    async def first_event(self, until: float) -> bytes:
        """The first event that is not a comment; empty when there is none yet at loop time `until`.

        Raises `UpstreamError`.
        """
        parser = EventParser()
        loop = asyncio.get_running_loop()
        while True:
            # A task, because the read must go on when the time is over.
            self._read = loop.create_task(self._piece())
            done, _ = await asyncio.wait({self._read}, timeout=max(0.0, until - loop.time()))
            if not done:
                return b""
            task, self._read = self._read, None
            chunk = await task
            if not chunk:
                text = f"upstream {self._upstream}: the stream ended before its first event"
                raise UpstreamBroken(text, upstream=self._upstream, before_first_byte=True)
            self._held.append(chunk)
            for frame in parser.feed(chunk):
                if not frame.startswith(b":"):
                    return frame

    async def aclose(self) -> None:
        """Stops the read under way too."""
        task, self._read = self._read, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # seen: whatever it was, nobody reads this body any more
        await super().aclose()

    def _next(self) -> Awaitable[bytes]:
        task, self._read = self._read, None
        return self._rest.__anext__() if task is None else self._read_by(task)

    async def _read_by(self, task: asyncio.Task[bytes]) -> bytes:
        chunk = await task
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def _piece(self) -> bytes:
        """The next piece, empty at the end: a task cannot raise StopAsyncIteration."""
        async for chunk in self._rest:
            if chunk:
                return chunk
        return b""


def _error_in(frame: bytes) -> dict[str, Any] | None:
    """The error that a frame tells."""
    if b'"error"' not in frame and frame_event(frame) != b"error":
        return None
    try:
        event = _OBJECT.decode(frame_data(frame))
    except READ_FAULTS:
        return None
    error = event.get("error")
    if isinstance(error, dict):
        return error
    if isinstance(error, str):
        return {"message": error}
    is_error = event.get("object") == "error" or event.get("type") == "error"
    return event if is_error or frame_event(frame) == b"error" else None


def _refusal(response: UpstreamResponse, error: dict[str, Any]) -> UpstreamResponse:
    kind = str(error.get("type") or "upstream_error")
    code = error.get("code")
    param = error.get("param")
    body = error_body(
        str(error.get("message") or "The upstream answered with an error."),
        kind=kind,
        param=param if isinstance(param, str) else None,
        code=None if code is None else str(code),
    )
    kept = tuple(header for header in response.headers if header[0] not in _OF_THE_STREAM)
    return UpstreamResponse(
        upstream=response.upstream,
        status=_status_of(error, kind),
        headers=(_JSON, *kept),
        body=Buffered(body),
        is_personal=response.is_personal,
    )


def _status_of(error: dict[str, Any], kind: str) -> int:
    for name in ("status", "status_code", "code"):
        told = str(error.get(name, ""))
        if told.isdecimal() and 400 <= int(told[:9]) <= 599:
            return int(told)
    return _STATUS_BY_TYPE.get(str(error.get("code")), _STATUS_BY_TYPE.get(kind, 502))


_OBJECT = msgspec.json.Decoder(dict[str, Any])
_LENIENT = json.JSONDecoder(parse_int=str, strict=False)
