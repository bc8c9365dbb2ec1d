import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.call import Surface
from proxy.request.normalize import fold, normalize

ALL = ("trim", "line_endings", "unicode", "collapse_spaces")


@pytest.mark.parametrize(
    ("folds", "text", "folded"),
    [
        ((), " a\r\n", " a\r\n"),
        (("trim",), " \n a  b \n", "a  b"),
        (("line_endings",), "a\r\nb\rc\n", "a\nb\nc\n"),
        (("unicode",), "e\u0301", "\u00e9"),
        (("unicode",), "ﬁ ²", "ﬁ ²"),
        (("collapse_spaces",), "a  b \t c", "a b c"),
        (("collapse_spaces",), "a\n\n  b", "a\n\n  b"),
        (("collapse_spaces",), "a\u00a0\u00a0b", "a\u00a0\u00a0b"),
        (("casefold",), "Straße X", "strasse x"),
        (("casefold", "unicode"), "\u0345\u0300A", "\u0300\u03b9a"),
    ],
)
def test_text_is_folded_as_the_policy_says(folds, text, folded):
    assert fold(text, folds) == folded


@pytest.mark.parametrize(
    "code",
    [
        "```\na  b\n```",
        "```python\nX  = 1\n\n  Y  = 2\n```",
        "~~~\na  b\n```\nc  d\n~~~",
        "```\nopen to the  END",
        "````\n```\na  b\n```\n````",
        "   ```\na  B\n   ```",
        "    indented  Code",
        "\tindented  Code",
        "  \tindented  Code",
        "`a  B`",
        "``a ` b  C``",
        "`a\nb  C`",
    ],
)
def test_code_is_neither_collapsed_nor_casefolded(code):
    assert fold(f"{code}\n", ("collapse_spaces", "casefold")) == f"{code}\n"


def test_prose_around_code_is_collapsed():
    text = "See  this:\n```\na  b\n```\nand  `c  d` or  e"
    assert fold(text, ("collapse_spaces",)) == "See this:\n```\na  b\n```\nand `c  d` or e"


def test_backtick_without_partner_does_not_hide_the_rest():
    assert fold("it`s  a  test ``x", ("collapse_spaces",)) == "it`s a test ``x"


def test_fence_behind_a_line_separator_does_not_end_a_block():
    code = "```\na\u2028```\nb  c\n```"
    assert fold(code, ("collapse_spaces",)) == code


def test_text_of_many_backticks_takes_linear_work():
    text = "` `` ``` " * 30_000 + "".join("`" * n + " " for n in range(1, 700))
    assert fold(text + "a  b", ("collapse_spaces",))


MARKDOWN = st.text(st.sampled_from("ab`~ \t\n\r#é\u0301A"), max_size=40)


@given(text=MARKDOWN, folds=st.sets(st.sampled_from([*ALL, "casefold"])))
def test_folding_changes_only_what_was_named(text, folds):
    folded = fold(text, folds)
    if "casefold" not in folds and "unicode" not in folds:
        assert "".join(folded.split()) == "".join(text.split())
    if not folds:
        assert folded == text


@given(text=st.text(st.sampled_from("ab \t"), max_size=30))
def test_collapsed_prose_has_no_gap_within_a_line(text):
    assert "  " not in fold("x" + text, ("collapse_spaces", "trim"))


def test_only_user_and_system_messages_are_folded():
    roles = ("system", "developer", "user", "assistant", "tool")
    fields = {"messages": [{"role": role, "content": " a  b "} for role in roles]}
    folded = normalize(Surface.CHAT, fields, ALL)
    contents = {message["role"]: message["content"] for message in folded["messages"]}
    assert contents == {
        "system": "a b",
        "developer": "a b",
        "user": "a b",
        "assistant": " a  b ",
        "tool": " a  b ",
    }
    assert fields["messages"][0]["content"] == " a  b "


def test_text_parts_are_folded_and_other_parts_are_not():
    image = {"type": "image_url", "image_url": {"url": " x  y "}}
    content = [{"type": "text", "text": " a  b "}, image]
    fields = {"messages": [{"role": "user", "content": content}]}
    (message,) = normalize(Surface.CHAT, fields, ALL)["messages"]
    assert message["content"] == [{"type": "text", "text": "a b"}, image]


@pytest.mark.parametrize(
    ("surface", "fields"),
    [
        (Surface.COMPLETIONS, {"prompt": " a  b "}),
        (Surface.EMBEDDINGS, {"input": [" a  b "]}),
    ],
)
def test_completions_and_embeddings_are_never_folded(surface, fields):
    assert normalize(surface, fields, ALL) == fields


def test_responses_messages_and_instructions_are_folded():
    fields = {
        "instructions": " a ",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": " b "}]},
            {"type": "function_call_output", "call_id": "c", "output": " c "},
        ],
    }
    assert normalize(Surface.RESPONSES, fields, ALL) == {
        "instructions": "a",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "b"}]},
            {"type": "function_call_output", "call_id": "c", "output": " c "},
        ],
    }
    assert normalize(Surface.RESPONSES, {"input": " b "}, ALL) == {"input": "b"}
