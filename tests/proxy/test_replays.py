"""The memory of replays in another form than they were recorded in."""

import json

import pytest

from proxy.answer import replay
from proxy.answer.payload import Payload, encode
from proxy.answer.replay import Replays
from proxy.call import Surface, Usage


def recorded(text: str = "An answer.", *, surface: Surface = Surface.CHAT) -> Payload:
    """From a stream of one word a chunk."""
    chunks = [
        {"id": "x", "choices": [{"index": 0, "delta": {"content": word}}]}
        for word in text.split(" ")
    ]
    frames = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in chunks)
    return Payload(
        surface=surface,
        headers=(),
        frames=frames,
        usage=Usage(),
        usage_known=False,
        model="m",
        has_tool_calls=False,
    )


def plain(text: str = "An answer.") -> Payload:
    message = {"role": "assistant", "content": text}
    body = {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return Payload(
        surface=Surface.CHAT,
        headers=(),
        body=json.dumps(body).encode(),
        usage=Usage(),
        usage_known=False,
        model="m",
        has_tool_calls=False,
    )


def test_a_replay_is_made_once_and_is_what_a_new_one_would_be():
    replays = Replays(max_bytes=2**20)
    first = replays.plain(recorded())
    assert first == replay.plain(recorded())
    assert replays.plain(recorded()) is first
    assert replays.plain(recorded("Another answer.")) != first


@pytest.mark.parametrize("include_usage", [False, True])
def test_streams_of_plain_answers_are_remembered_by_their_form(include_usage):
    replays = Replays(max_bytes=2**20)
    made = [replays.stream(plain(), include_usage=include_usage) for _ in range(2)]
    other = replays.stream(plain(), include_usage=not include_usage)
    assert made[0] is made[1]
    assert made[0] == replay.stream(plain(), include_usage=include_usage)
    assert other == replay.stream(plain(), include_usage=not include_usage) != made[0]


def test_what_stands_in_the_record_is_not_remembered_again():
    replays = Replays(max_bytes=2**20)
    payload = plain()
    assert replays.plain(payload) is payload.body
    assert replays.held_bytes == 0


def test_the_memory_is_bounded_and_the_oldest_go_first():
    one = len(replay.plain(recorded("0")))
    replays = Replays(max_bytes=10 * one)
    first = replays.plain(recorded("0"))
    for number in range(1, 10):
        replays.plain(recorded(str(number)))
    assert replays.plain(recorded("0")) is first
    replays.plain(recorded("A"))
    assert replays.held_bytes <= 10 * one
    assert replays.plain(recorded("0")) is first
    replays.plain(recorded("x" * 20 * one))
    assert replays.held_bytes <= 10 * one


def test_a_record_is_read_once_as_long_as_it_is_remembered():
    replays = Replays(max_bytes=4096)
    stored = encode(plain())
    first = replays.read(stored)
    assert first == plain()
    assert replays.read(stored) is first
    assert replays.read(b"damaged" + stored) is None
    for number in range(20):
        replays.read(encode(plain(f"another {number}")))
    assert replays.read(stored) is not first
    assert sum(len(one) for one in replays._read) * 2 <= 4096
    replays.forget()
    assert not replays._read
