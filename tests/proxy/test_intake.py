"""What was decided of a request is remembered for the same request only."""

import contextlib
import json

import pytest
from misbehaving import serving
from running import CONFIG, good, running

from proxy.call import Surface
from proxy.errors import ClientError
from proxy.observing.timing import Timing
from proxy.port.intake import _LONGEST_BYTES, _OBJECTS_BYTES


def body(**more):
    messages = [{"role": "user", "content": "hi"}]
    return json.dumps({"model": "test-1", "messages": messages, **more}).encode()


@contextlib.asynccontextmanager
async def intake(tmp_path, policy="", match=""):
    async with serving(good) as upstream:
        text = CONFIG.format(upstream=upstream.url, options="", policy=policy)
        text = text.replace('{model: "uncached"}', f'{{model: "uncached"{match}}}')
        async with running(text, tmp_path) as p:
            yield p.proxy._port.site.intake


async def decided(desk, its_body, *headers, query=b"", key=b"sk-one", request_id="r1"):
    async def receive():
        return {"type": "http.request", "body": its_body, "more_body": False}

    scope = {"headers": [(b"authorization", b"Bearer " + key), *headers], "query_string": query}
    return await desk.question(
        Surface.CHAT,
        "/chat/completions",
        scope,
        receive,
        request_id=request_id,
        timing=Timing(),
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


TRACES = [
    (b"traceparent", b"00-%032x-%016x-01"),
    (b"x-amzn-trace-id", b"Root=1-%x-%x"),
    (b"baggage", b"sentry-trace_id=%x,sentry-sampled=%x"),
]


@pytest.mark.parametrize(("name", "form"), TRACES, ids=["w3c", "amazon", "sentry"])
async def test_what_is_new_in_each_trace_is_no_reason_to_decide_anew(tmp_path, name, form):
    async with intake(tmp_path) as desk:
        first = await decided(desk, body(), (name, form % (1, 1)))
        again = await decided(desk, body(), (name, form % (2, 2)))
        without = await decided(desk, body())
    assert again.fingerprint is without.fingerprint is first.fingerprint
    assert (name, form % (2, 2)) in again.call.headers  # forwarded as it came
    assert len(without.call.headers) == 1


@pytest.mark.parametrize("where", ["match", "policy"])
async def test_a_trace_that_a_rule_looks_at_is_decided_by(tmp_path, where):
    more = {
        "match": {"match": ', header: {Traceparent: "*"}'},
        "policy": {"policy": ", tags: [{header: Traceparent}]"},
    }
    async with intake(tmp_path, **more[where]) as desk:
        first = await decided(desk, body(), (b"traceparent", b"one"))
        second = await decided(desk, body(), (b"traceparent", b"two"))
    assert second.fingerprint is not first.fingerprint
    assert first.tags == (("one",) if where == "policy" else ())


async def test_baggage_of_others_than_sentry_is_decided_by(tmp_path):
    async with intake(tmp_path) as desk:
        first = await decided(desk, body(), (b"baggage", b"user=1,sentry-a=1"))
        second = await decided(desk, body(), (b"baggage", b"user=2,sentry-a=1"))
    assert second.key != first.key


async def test_a_known_request_with_too_long_a_trace_is_refused(tmp_path):
    async with intake(tmp_path) as desk:
        await decided(desk, body())
        with pytest.raises(ClientError, match="headers exceed"):
            await decided(desk, body(), (b"tracestate", b"x" * 2**16))


async def test_a_refused_request_is_refused_again(tmp_path):
    async with intake(tmp_path) as desk:
        for _ in range(2):
            with pytest.raises(ClientError, match="messages"):
                await decided(desk, b'{"model": "test-1", "messages": []}')


@pytest.mark.parametrize("where", ["body", "headers", "query"])
async def test_no_more_is_remembered_than_the_bound(tmp_path, where):
    async def ask(desk, number, length):
        text = f"{number:06}" + "x" * length
        if where == "body":
            return await decided(desk, body(stop=text))
        if where == "headers":
            return await decided(desk, body(), (b"x-custom", text.encode()))
        return await decided(desk, body(), query=b"q=" + text.encode())

    async with intake(tmp_path) as desk:
        for number in range(1500):
            await ask(desk, number, 3000)
        held = remembered(desk)
        await ask(desk, 0, _LONGEST_BYTES)
        after = remembered(desk)
    assert 0 < held * (3000 + _OBJECTS_BYTES) < 8 * 2**20
    assert after == held


def remembered(desk):
    return sum(len(known.questions) for known in desk._known.values())
