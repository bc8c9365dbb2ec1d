import itertools
import sys

import pytest

from engine.kv.retention import Everything, Retention, Selection, SinksAndWindow, retention
from engine.longcontext import LongContext

PAGE = 4
WINDOW = SinksAndWindow(sinks=4, window=16, stride=8)
SELECTION = Selection(num_prompt=50, keep=20, sinks=2)


def _made(num_prompt: int = 1000, *, model_window: int = 0, **wanted: object) -> Retention:
    return retention(
        LongContext(**wanted),  # type: ignore[arg-type]  # as a config has them
        num_prompt=num_prompt, page_tokens=PAGE, model_window=model_window,
    )  # fmt: skip


def test_by_default_everything_stays() -> None:
    kept = _made()
    assert kept == Everything()
    assert (kept.lost(10**6), kept.reach(0), kept.shares) == (0, sys.maxsize, True)


def test_sinks_and_windows_are_rounded_up_to_pages() -> None:
    assert _made(mode="window", sinks=1, window=50) == SinksAndWindow(sinks=4, window=52, stride=4)
    assert _made(mode="window", sinks=0, window=640) == SinksAndWindow(
        sinks=0, window=640, stride=80
    )


def test_a_window_is_no_narrower_than_those_of_the_model() -> None:
    wide = _made(mode="window", window=8, model_window=63)
    assert isinstance(wide, SinksAndWindow)
    assert wide.window == 64
    chosen = _made(mode="drop", keep=40, model_window=63)
    assert isinstance(chosen, Selection)
    assert chosen.keep == 64


@pytest.mark.parametrize("num_prompt", [1, 40])
def test_a_prompt_that_is_short_enough_is_kept_and_shared(num_prompt: int) -> None:
    assert _made(num_prompt, mode="drop", keep=39) == Everything()
    assert _made(41, mode="drop", keep=39) == Selection(num_prompt=41, keep=40, sinks=4)


def test_the_last_tokens_and_the_sinks_always_find_room() -> None:
    chosen = _made(mode="drop", keep=1, sinks=5)
    assert isinstance(chosen, Selection)
    assert chosen.keep >= 5 + 32


def test_a_query_sees_at_least_the_window_and_less_than_a_stride_more() -> None:
    for position in range(300):
        seen = position - WINDOW.lost(position) - WINDOW.sinks
        assert seen == position - 4 if position < 28 else 16 <= seen < 24


@pytest.mark.parametrize("kept", [Everything(), WINDOW, SELECTION])
def test_nothing_goes_within_a_chunk(kept: Retention) -> None:
    for position in range(200):
        end = min(kept.reach(position), 400)
        assert end > position
        assert kept.lost(end - 1) == kept.lost(position)
        assert kept.first_lost() % PAGE == 0 or kept == Everything()


@pytest.mark.parametrize("kept", [Everything(), WINDOW, SELECTION])
@pytest.mark.parametrize("last", [1, 27, 28, 50, 51, 90])
def test_held_is_the_most_that_is_ever_in_pages(kept: Retention, last: int) -> None:
    for first in range(last):
        position, most = first, 0
        while position < last:
            end = min(kept.reach(position), last)
            most = max(most, end - kept.lost(position))
            position = end
        assert kept.held(first, last) == most


def test_what_goes_never_comes_back() -> None:
    for kept in (WINDOW, SELECTION):
        lost = [kept.lost(position) for position in range(300)]
        assert all(one <= other for one, other in itertools.pairwise(lost))


def test_a_window_that_fits_into_the_pool_has_no_end() -> None:
    assert WINDOW.longest(28) == sys.maxsize
    assert WINDOW.longest(27) == 27


def test_a_prompt_has_to_fit_before_it_is_cut() -> None:
    assert SELECTION.longest(49) == 49
    assert SELECTION.longest(50) == 80
