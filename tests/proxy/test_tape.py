"""The frames of one stream."""

from proxy.answer.grammar import Frame, FrameKind
from proxy.misses.tape import Tape


def frames(*sizes: int) -> list[Frame]:
    return [Frame(kind=FrameKind.CONTENT, data=b"x" * size, bare=b"") for size in sizes]


def sizes(read: list[Frame]) -> list[int]:
    return [len(frame.data) for frame in read]


def test_as_many_frames_are_read_as_fit_and_at_least_one():
    tape = Tape()
    tape.append(frames(10, 20, 30))
    tape.append(frames(40))
    assert sizes(tape.read(0, max_bytes=100)) == [10, 20, 30, 40]
    assert sizes(tape.read(0, max_bytes=99)) == [10, 20, 30]
    assert sizes(tape.read(1, max_bytes=50)) == [20, 30]
    assert sizes(tape.read(3, max_bytes=1)) == [40]
    assert tape.read(4, max_bytes=100) == []


def test_numbers_and_sizes_stay_when_the_beginning_is_dropped():
    tape = Tape()
    tape.append(frames(10, 20, 30, 40))
    tape.drop_before(3)
    assert (tape.end, tape.end_bytes, tape.held_bytes) == (4, 100, 40)
    tape.append(frames(50))
    assert sizes(tape.read(3, max_bytes=90)) == [40, 50]
    assert sizes(tape.read(3, max_bytes=89)) == [40]
    assert [tape.bytes_before(number) for number in (3, 4, 5)] == [60, 100, 150]
    tape.drop_before(5)
    assert (tape.held_bytes, tape.bytes_before(5)) == (0, 150)
