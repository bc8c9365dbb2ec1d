"""Patterns with `*` and `?`."""

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.settings.glob import compile_globs, covers, is_literal

GLOBS = st.text(alphabet="ab*?", max_size=6)
TEXTS = st.text(alphabet="ab/\n", max_size=8)


def matches(glob, text):
    """The slow reference: by the definition, character by character."""
    if not glob:
        return not text
    if glob[0] == "*":
        return any(matches(glob[1:], text[n:]) for n in range(len(text) + 1))
    return bool(text) and glob[0] in ("?", text[0]) and matches(glob[1:], text[1:])


@settings(deadline=None)
@given(glob=GLOBS, text=TEXTS)
def test_a_pattern_matches_what_its_definition_says(glob, text):
    assert (compile_globs(glob).fullmatch(text) is not None) is matches(glob, text)


@settings(deadline=None)
@given(globs=st.lists(GLOBS, min_size=1, max_size=3), text=TEXTS)
def test_several_patterns_match_what_one_of_them_does(globs, text):
    assert (compile_globs(*globs).fullmatch(text) is not None) is any(
        matches(glob, text) for glob in globs
    )


@settings(deadline=None, max_examples=300)
@given(wide=GLOBS, narrow=GLOBS, text=st.text(alphabet="ab", max_size=6))
def test_a_pattern_that_covers_another_matches_all_that_it_matches(wide, narrow, text):
    if covers(wide, narrow) and matches(narrow, text):
        assert matches(wide, text)


def test_no_pattern_means_no_text_but_the_empty_one():
    assert compile_globs().fullmatch("a") is None


def test_a_literal_has_no_wildcard():
    assert is_literal("gpt-4.1[x]")
    assert not is_literal("gpt-*")
    assert not is_literal("gpt-?")


def test_many_stars_cost_no_more_than_one_pass_each():
    glob = compile_globs("*a*a*a*a*a*b")
    assert glob.fullmatch("a" * 20_000) is None
