import asyncio
from collections.abc import AsyncGenerator

import pytest

from proxy.errors import UpstreamBroken
from proxy.upstreams.base import UpstreamResponse
from proxy.upstreams.body import Buffered
from proxy.upstreams.opening import opened, whole

EVENT = b'data: {"choices":[]}\n\n'


def response(body: AsyncGenerator[bytes, None]) -> UpstreamResponse:
    headers = ((b"content-type", b"text/event-stream; charset=utf-8"),)
    return UpstreamResponse(upstream="a", status=200, headers=headers, body=body)


async def test_a_late_first_event_is_not_waited_for_and_not_lost() -> None:
    go_on = asyncio.Event()

    async def body() -> AsyncGenerator[bytes, None]:
        yield b": hi\n\n"
        await go_on.wait()
        yield EVENT
        yield EVENT

    answer = await opened(response(body()), commit_after_s=0.05)

    assert await anext(answer.body) == b": hi\n\n"
    go_on.set()
    assert [piece async for piece in answer.body] == [EVENT, EVENT]


async def test_a_stream_that_ends_after_the_promise_ends_for_the_reader_too() -> None:
    go_on = asyncio.Event()

    async def body() -> AsyncGenerator[bytes, None]:
        await go_on.wait()
        for piece in ():
            yield piece

    answer = await opened(response(body()), commit_after_s=0.01)
    go_on.set()
    assert [piece async for piece in answer.body] == []


async def test_closing_stops_the_read_under_way() -> None:
    stopped = asyncio.Event()

    async def body() -> AsyncGenerator[bytes, None]:
        try:
            await asyncio.Event().wait()
            yield b""
        finally:
            stopped.set()

    answer = await opened(response(body()), commit_after_s=0.01)
    await answer.body.aclose()
    await answer.body.aclose()
    assert stopped.is_set()


@pytest.mark.parametrize(
    ("status", "kind"), [(200, b"application/json"), (500, b"text/event-stream")]
)
async def test_other_answers_are_left_alone(status: int, kind: bytes) -> None:
    async def body() -> AsyncGenerator[bytes, None]:
        yield b"{}"

    answer = response(body())
    answer.status, answer.headers = status, ((b"content-type", kind),)
    kept = answer.body
    assert (await opened(answer)).body is kept
    await kept.aclose()


def undelimited(data: bytes, *, status: int = 200, kind: bytes = b"application/json"):
    headers = ((b"content-type", kind),)
    body = Buffered(data)
    return UpstreamResponse(
        upstream="a", status=status, headers=headers, body=body, delimited=False
    )


@pytest.mark.parametrize("data", [b"", b'{"a": {"b": 1}', b'{"a": "\xe4', b"[1, 2"])
async def test_json_that_is_cut_where_only_itself_can_tell_is_broken(data: bytes) -> None:
    with pytest.raises(UpstreamBroken):
        await whole(undelimited(data))


@pytest.mark.parametrize("data", [b' {"a": "\\ud800", "b": "\n", "c": NaN}', b"{} {}", b'"\xff"',
                                  b"[" * 100_000, b"1" * 5000])  # fmt: skip
async def test_json_that_is_only_odd_is_passed_on(data: bytes) -> None:
    answer = await whole(undelimited(data))
    assert b"".join([piece async for piece in answer.body]) == data


async def test_cut_errors_and_texts_are_passed_on() -> None:
    for answer in (undelimited(b"{", status=404), undelimited(b"{", kind=b"text/plain")):
        assert await whole(answer) is answer
