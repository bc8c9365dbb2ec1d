import pytest

from proxy.upstreams.breaker import MAX_UNREACHED, OPEN_S, WINDOW_S, Breaker


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def attempts(breaker: Breaker, *, good: int, bad: int) -> None:
    for _ in range(good):
        breaker.succeeded()
    for _ in range(bad):
        breaker.failed()


@pytest.mark.parametrize(
    ("good", "bad", "is_open"),
    [(0, 19, False), (0, 20, True), (10, 10, True), (11, 9, False), (100, 99, False),
     (100, 100, True)],
)  # fmt: skip
def test_it_opens_at_enough_attempts_of_which_half_failed(
    clock: Clock, good: int, bad: int, is_open: bool
) -> None:
    breaker = Breaker(clock=clock)
    attempts(breaker, good=good, bad=bad)
    assert breaker.is_open is is_open
    assert breaker.allow() is not is_open


def test_what_is_longer_ago_than_the_window_does_not_count(clock: Clock) -> None:
    breaker = Breaker(clock=clock)
    attempts(breaker, good=0, bad=19)
    clock.now += WINDOW_S
    breaker.failed()
    assert not breaker.is_open


def test_failures_add_up_over_the_seconds_of_the_window(clock: Clock) -> None:
    breaker = Breaker(clock=clock)
    for _ in range(20):
        breaker.failed()
        clock.now += 1
    assert breaker.is_open


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(clock=clock)
    attempts(breaker, good=0, bad=20)
    return breaker


def test_when_open_one_probe_passes_after_a_while(clock: Clock) -> None:
    breaker = opened(clock)
    clock.now += OPEN_S - 0.1
    assert not breaker.allow()
    clock.now += 0.1
    assert breaker.allow()
    assert not breaker.allow()


def test_a_probe_that_is_answered_closes_it_with_a_clean_record(clock: Clock) -> None:
    breaker = opened(clock)
    clock.now += OPEN_S
    assert breaker.allow()
    breaker.succeeded()
    assert not breaker.is_open
    attempts(breaker, good=0, bad=19)
    assert breaker.allow()


def test_a_probe_that_fails_keeps_it_open_for_as_long_again(clock: Clock) -> None:
    breaker = opened(clock)
    clock.now += OPEN_S
    assert breaker.allow()
    clock.now += OPEN_S / 2
    breaker.failed()
    clock.now += OPEN_S - 0.1
    assert not breaker.allow()
    clock.now += 0.1
    assert breaker.allow()


def test_a_probe_that_is_never_heard_of_again_is_followed_by_another(clock: Clock) -> None:
    breaker = opened(clock)
    clock.now += OPEN_S
    assert breaker.allow()
    clock.now += OPEN_S
    assert breaker.allow()


def test_answers_to_older_requests_do_not_count_as_the_probe(clock: Clock) -> None:
    breaker = opened(clock)
    breaker.succeeded()
    assert breaker.is_open


def test_a_server_with_others_beside_it_is_left_after_a_few_failed_connections() -> None:
    breaker = Breaker(clock=lambda: 0.0, has_others=True)
    for _ in range(MAX_UNREACHED - 1):
        breaker.failed(unreached=True)
    breaker.succeeded()
    for _ in range(MAX_UNREACHED):
        assert not breaker.is_open
        breaker.failed(unreached=True)
    assert breaker.is_open
    assert not breaker.passes


def test_a_server_without_others_is_asked_on_after_a_few_failed_connections() -> None:
    breaker = Breaker(clock=lambda: 0.0)
    for _ in range(MAX_UNREACHED):
        breaker.failed(unreached=True)
    assert breaker.passes
