import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.answer.sse import (
    MAX_EVENT_BYTES,
    EventParser,
    EventTooLarge,
    frame_data,
    frame_event,
    split_frames,
)


def parsed(*chunks: bytes) -> list[bytes]:
    parser = EventParser()
    return [frame for chunk in chunks for frame in parser.feed(chunk)]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


@pytest.mark.parametrize(
    ("stream", "frames"),
    [
        (b'data: {"a":1}\n\n', [b'data: {"a":1}\n\n']),
        (b'data:{"a":1}\n\n', [b'data: {"a":1}\n\n']),
        (b'data: {"a":1}\r\n\r\n', [b'data: {"a":1}\n\n']),
        (b'data: {"a":1}\r\rdata: 2\r\r', [b'data: {"a":1}\n\n', b"data: 2\n\n"]),
        (b"data: 1\n\ndata: 2\n\n", [b"data: 1\n\n", b"data: 2\n\n"]),
        (b"data: 1\n\n\n\n\ndata: 2\n\n", [b"data: 1\n\n", b"data: 2\n\n"]),
        (b"\n\ndata: 1\n\n", [b"data: 1\n\n"]),
        (b"data: {\ndata:  1}\n\n", [b"data: {\ndata:  1}\n\n"]),
        (b"event: x\ndata: 1\n\n", [b"event: x\ndata: 1\n\n"]),
        (b"data: 1\nevent:x\n\n", [b"event: x\ndata: 1\n\n"]),
        (b": hello\n\n", [b": hello\n\n"]),
        (b":\n\n", [b": \n\n"]),
        (b": hello\ndata: 1\n\n", [b": hello\n\n", b"data: 1\n\n"]),
        (b"id: 7\nretry: 5\ndata: 1\n\n", [b"data: 1\n\n"]),
        (b"id: 7\n\nretry: 5\n\nevent: x\n\n", []),
        (b"data\n\ndata:\n\ndata: \n\n", []),
        (b"\xef\xbb\xbfdata: 1\n\n", [b"data: 1\n\n"]),
        (b"data: [DONE]\n\n", [b"data: [DONE]\n\n"]),
        ("data: 你好\n\n".encode(), ["data: 你好\n\n".encode()]),
    ],
)
def test_every_way_to_write_an_event_gives_the_normal_form_at_any_cut(
    stream: bytes, frames: list[bytes]
) -> None:
    assert parsed(stream) == frames
    assert parsed(*(stream[i : i + 1] for i in range(len(stream)))) == frames
    for place in range(len(stream)):
        assert parsed(stream[:place], stream[place:]) == frames


LINES = st.lists(
    st.sampled_from(
        ["data: {", 'data:"é":1', "data: }", "data: [DONE]", "data:", "event: x", ": c", "id: 1",
         "", "", "", "你: 好", "\ufeffdata: 2"]
    ),
    max_size=14,
)  # fmt: skip


@given(
    lines=LINES,
    ends=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=15, max_size=15),
    places=st.lists(st.integers(0, 400), max_size=12),
)
def test_any_cut_of_any_stream_gives_the_same_frames(
    lines: list[str], ends: list[str], places: list[int]
) -> None:
    stream = "".join(line + end for line, end in zip(lines, ends, strict=False)).encode()

    whole = EventParser()
    frames = whole.feed(stream)
    pieces = EventParser()
    cut_frames = [frame for piece in cut(stream, places) for frame in pieces.feed(piece)]

    assert cut_frames == frames
    assert pieces.flush() == whole.flush()
    assert parsed(b"".join(frames)) == frames
    assert split_frames(b"".join(frames)) == frames


def test_an_unfinished_event_is_pending_until_its_blank_line() -> None:
    parser = EventParser()
    assert not parser.pending
    assert parser.feed(b"data: 1\n") == []
    assert parser.pending
    assert parser.feed(b"\n") == [b"data: 1\n\n"]
    assert not parser.pending


def test_the_rest_of_a_stream_is_given_out_on_demand() -> None:
    parser = EventParser()
    parser.feed(b"data: 1\n\ndata: [DONE]\n")
    assert parser.flush() == [b"data: [DONE]\n\n"]
    assert not parser.pending


def test_a_long_event_in_many_small_chunks_is_put_together_once() -> None:
    parser = EventParser()
    parser.feed(b"data: ")
    for _ in range(400_000):  # a new copy for each of them would move 1.3 TB
        assert parser.feed(b"x" * 16) == []
    assert len(parser.feed(b"\n\n")[0]) == 16 * 400_000 + 8


def test_a_server_that_never_ends_an_event_is_stopped() -> None:
    parser = EventParser()
    piece = b"x" * 2**20
    with pytest.raises(EventTooLarge):
        for _ in range(MAX_EVENT_BYTES // len(piece) + 1):
            parser.feed(piece)


def test_data_and_event_are_read_back_from_frames() -> None:
    assert frame_data(b"data: 1\n\n") == b"1"
    assert frame_data(b"event: x\ndata: 1\ndata: 2\n\n") == b"1\n2"
    assert frame_data(b": c\n\n") == b""
    assert frame_event(b"event: x\ndata: 1\n\n") == b"x"
    assert frame_event(b"data: 1\n\n") == b""
