"""What was decided of a request is remembered for the same request only."""

import asyncio
import contextlib
import json

import pytest
from misbehaving import serving
from running import CONFIG, good, running

from proxy.call import Surface
from proxy.errors import ClientError
from proxy.intake import _LONGEST_BODY_BYTES

DEADLINE_S = 60


@pytest.fixture(autouse=True)
async def deadline():
    async with asyncio.timeout(DEADLINE_S):
        yield


def body(**more):
    messages = [{"role": "user", "content": "hi"}]
    return json.dumps({"model": "test-1", "messages": messages, **more}).encode()


@contextlib.asynccontextmanager
async def intake(tmp_path, policy=""):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=policy), tmp_path) as p,
    ):
        yield p.proxy._port.site.intake


async def decided(desk, its_body, *headers, query=b"", key=b"sk-one", request_id="r1"):
    async def receive():
        return {"type": "http.request", "body": its_body, "more_body": False}

    scope = {"headers": [(b"authorization", b"Bearer " + key), *headers], "query_string": query}
    return await desk.question(
        Surface.CHAT, "/chat/completions", scope, receive, request_id=request_id
    )


async def test_the_same_bytes_are_decided_once_and_keep_what_is_their_own(tmp_path):
    async with intake(tmp_path) as desk:
        first = await decided(desk, body(), request_id="r1")
        again = await decided(desk, body(), request_id="r2")
    assert again.fingerprint is first.fingerprint
    assert (first.call.request_id, again.call.request_id) == ("r1", "r2")
    assert again.call.received_at >= first.call.received_at


@pytest.mark.parametrize(
    "other",
    [
        {"its_body": body(temperature=0)},
        {"query": b"api-version=2"},
        {"key": b"sk-two"},
        {"header": (b"x-custom", b"1")},
        {"header": (b"x-cache-namespace", b"other")},
    ],
)
async def test_whatever_may_change_the_answer_is_decided_anew(tmp_path, other):
    async with intake(tmp_path) as desk:
        first = await decided(desk, body())
        headers = [other.pop("header")] if "header" in other else []
        second = await decided(desk, other.pop("its_body", body()), *headers, **other)
    assert second.key != first.key


async def test_a_refused_request_is_refused_again(tmp_path):
    async with intake(tmp_path) as desk:
        for _ in range(2):
            with pytest.raises(ClientError, match="messages"):
                await decided(desk, b'{"model": "test-1", "messages": []}')


async def test_no_more_is_remembered_than_the_bound(tmp_path):
    async with intake(tmp_path) as desk:
        for number in range(3000):
            await decided(desk, body(seed=number, stop="x" * 2000))
        held = sum(len(known.questions) for known in desk._known.values())
        await decided(desk, body(stop="x" * _LONGEST_BODY_BYTES))
        after = sum(len(known.questions) for known in desk._known.values())
    assert 0 < held < 1200
    assert after == held
