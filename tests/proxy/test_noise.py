"""What programs write into requests anew each time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from misbehaving import plain, serving
from running import CONFIG, completion, running

from proxy.call import Surface
from proxy.request.budget import Budget
from proxy.request.noise import KNOWN, renumber, strip

MARK = "\ufffc"


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("uuid", "run 123e4567-E89B-12d3-a456-426614174000 now", f"run {MARK} now"),
        ("uuid", "123e4567-e89b-12d3-a456", "123e4567-e89b-12d3-a456"),
        ("timestamp", "at 2026-01-02T03:04:05.678Z: go", f"at {MARK}: go"),
        ("timestamp", "at 2026-01-02 03:04 +02:00", f"at {MARK}"),
        ("timestamp", "who won on 2026-01-02?", "who won on 2026-01-02?"),
        ("request_id", "[req_8f3kd93kdLk2] hi", f"[{MARK}] hi"),
        ("request_id", "trace-0123456789abcdef", MARK),
        ("request_id", "request-response and run-time", "request-response and run-time"),
        (r"session=\w+", "session=abc x", f"{MARK} x"),
    ],
)
def test_what_a_pattern_finds_becomes_a_mark(pattern, text, expected):
    assert strip(text, [pattern], Budget()) == expected


def test_patterns_have_one_budget_for_all_texts_of_a_request():
    budget = Budget(0.05)
    with pytest.raises(TimeoutError):
        strip("b" + "a" * 200 + "!", ["(a|aa)+$"], budget)
    with pytest.raises(TimeoutError):
        strip("b", ["b"], budget)


@given(st.text(max_size=80))
def test_stripping_twice_changes_nothing_more(text):
    once = strip(text, list(KNOWN), Budget(10))
    assert strip(once, list(KNOWN), Budget(10)) == once


def test_ids_become_numbers_that_still_belong_together():
    def asked(one: str, two: str) -> dict:
        call = {"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        return {
            "messages": [
                {"id": two, "role": "user", "content": "hi"},
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": one, "content": "x"},
            ]
        }

    assert renumber(Surface.CHAT, asked("a", "b")) == renumber(Surface.CHAT, asked("c", "d"))
    assert renumber(Surface.CHAT, asked("a", "a")) != renumber(Surface.CHAT, asked("a", "b"))
    original = asked("a", "b")
    renumber(Surface.CHAT, original)
    assert original == asked("a", "b")


def test_items_of_the_responses_api_are_renumbered_too():
    def asked(one: str) -> dict:
        return {
            "input": [
                {"type": "function_call", "id": f"fc_{one}", "call_id": one, "name": "f"},
                {"type": "function_call_output", "call_id": one, "output": "id stays"},
            ]
        }

    assert renumber(Surface.RESPONSES, asked("a")) == renumber(Surface.RESPONSES, asked("b"))


async def test_requests_that_differ_in_noise_only_share_an_answer(tmp_path):
    async def answer(_request, writer):
        writer.write(plain(completion()))

    policy = ", strip: [timestamp, 'session=[a-z]+'], normalize: [message_ids]"
    async with (
        serving(answer) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=policy), tmp_path) as p,
    ):
        words = []
        for clock, session, call in (("10:00:01", "a", "c1"), ("10:00:02", "b", "c2")):
            tool = {"id": call, "type": "function", "function": {"name": "f", "arguments": "{}"}}
            messages = [
                {"role": "system", "content": f"It is 2026-01-02T{clock}Z. session={session}"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": None, "tool_calls": [tool]},
                {"role": "tool", "tool_call_id": call, "content": "x"},
            ]
            words.append((await p.ask(messages=messages)).headers["x-cache"])
        words.append((await p.ask("session=c")).headers["x-cache"])
    assert words == ["miss", "exact", "miss"]
    assert b"10:00:01" in upstream.requests[0].body


async def test_a_request_whose_patterns_take_too_long_passes_the_cache_by(tmp_path):
    async def answer(_request, writer):
        writer.write(plain(completion()))

    messages = [{"role": "user", "content": "a" * 200 + "!"}] * 60
    policy = ", strip: ['(a|aa)+$']"
    async with (
        serving(answer) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=policy), tmp_path) as p,
    ):
        answers = [await p.ask(messages=messages) for _ in range(2)]
        quick = [(await p.ask("hi")).headers["x-cache"] for _ in range(2)]
    assert [answered.headers["x-cache"] for answered in answers] == ["bypass", "bypass"]
    assert "strip_slow" in answers[0].headers["cache-status"]
    assert quick == ["miss", "exact"]
