from hypothesis import given
from hypothesis import strategies as st

from engine.text.stops import StopMatcher


def _shown(stops: list[str], pieces: list[str]) -> str:
    matcher = StopMatcher(stops)
    shown = ""
    for piece in pieces:
        cut = matcher.push(piece)
        shown += cut.text
        if cut.stopped:
            return shown
    return shown + matcher.close()


@given(
    st.lists(st.text("ab", max_size=3), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_the_answer_ends_before_the_first_stop_string_however_it_is_cut(
    pieces: list[str], stops: list[str]
) -> None:
    # The answer ends at the first piece that completes a stop string.
    text, expected = "", None
    for piece in pieces:
        text += piece
        starts = [text.index(stop) for stop in stops if stop in text]
        if starts:
            expected = text[: min(starts)]
            break
    assert _shown(stops, pieces) == (text if expected is None else expected)


@given(st.lists(st.text("abc", max_size=3), max_size=12))
def test_nothing_of_a_stop_string_is_shown_before_it_is_complete(pieces: list[str]) -> None:
    matcher, text, shown = StopMatcher(["abcab"]), "", ""
    for piece in pieces:
        text += piece
        cut = matcher.push(piece)
        shown += cut.text
        assert text.startswith(shown)
        begun = next((n for n in (4, 3, 2, 1) if text.endswith("abcab"[:n])), 0)
        assert cut.stopped or len(shown) == len(text) - begun
        if cut.stopped:
            return


def test_text_that_turns_out_harmless_is_let_go_at_once() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.push("Yes.\n\n").text == "Yes."
    assert matcher.push("Use").text == ""
    assert matcher.push("d").text == "\n\nUsed"
