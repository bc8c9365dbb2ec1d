import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.process.protocol import Abort, Delta, FrameBuffer, FromWorker, ToWorker, frame


@given(st.lists(st.integers(0, 2**60), max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_messages_survive_a_stream_however_it_is_cut(ids: list[int], cuts: list[int]) -> None:
    data = b"".join(frame(Abort(request_id=request_id)) for request_id in ids)
    frames, got, at = FrameBuffer(), [], 0
    while at < len(data):
        size = cuts[at % len(cuts)]
        got += frames.feed(data[at : at + size])
        at += size
    decoder = msgspec.msgpack.Decoder(ToWorker)
    assert [decoder.decode(body).request_id for body in got] == ids


def test_a_union_member_comes_back_as_itself() -> None:
    delta = Delta(request_id=1, index=0, text="é")
    (body,) = FrameBuffer().feed(frame(delta))
    assert msgspec.msgpack.decode(body, type=FromWorker) == delta


def test_a_length_beyond_all_reason_is_an_error() -> None:
    with pytest.raises(ValueError, match="frame"):
        list(FrameBuffer().feed(b"\xff\xff\xff\xff"))
