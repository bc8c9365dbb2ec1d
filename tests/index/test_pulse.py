import pytest

from index.sqlite.pulse import Pulse


@pytest.fixture
def pulses(tmp_path):
    both = Pulse(tmp_path / "store.db"), Pulse(tmp_path / "store.db")
    yield both
    for pulse in both:
        pulse.close()


def test_a_beat_is_seen_by_all_who_share_the_file(pulses):
    one, other = pulses
    before = other.token()
    one.beat()
    assert other.token() == one.token() != before


def test_no_two_beats_are_alike_whoever_beats(pulses):
    tokens = [pulses[0].token()]
    for number in range(100):
        pulses[number % 2].beat()
        tokens.append(pulses[0].token())
    assert len(set(tokens)) == len(tokens)


def test_a_file_that_was_there_before_keeps_its_token(tmp_path, pulses):
    pulses[0].beat()
    later = Pulse(tmp_path / "store.db")
    assert later.token() == pulses[0].token()
    later.close()


def test_closing_twice_is_a_no_op(tmp_path):
    pulse = Pulse(tmp_path / "other.db")
    pulse.close()
    pulse.close()
