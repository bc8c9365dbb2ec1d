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
        (("trim",), " \n\t\r\n a  b \n", " a  b"),
        (("trim",), "    if x:\n  y\n", "    if x:\n  y"),
        (("line_endings",), "a\r\nb\rc\n", "a\nb\nc\n"),
        (("unicode",), "e\u0301", "\u00e9"),
        (("unicode",), "ﬁ ²", "ﬁ ²"),
        (("collapse_spaces",), "a  b     c", "a b c"),
        (("collapse_spaces",), "It's  the users' a", "It's  the users' a"),
        (("collapse_spaces",), "It's  a  test.  Is it?", "It's a test. Is it?"),
        (
            ("collapse_spaces",),
            "Names.  Ages.\nbob   3\neve     4",
            "Names. Ages.\nbob   3\neve     4",
        ),
        (("collapse_spaces",), "a\t\tb \t c", "a\t\tb \t c"),
        (("collapse_spaces",), "a  \nb", "a  \nb"),
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
        "- ~~~\n  s = 'a  B'\n  ~~~",
        "1. ```py\n   s = 'a  B'",
        "> ```\n> a  B",
        "<pre>a  B</pre>",
        "<PRE>\na  B\n</PRE>",
        "What does len('a  B') return?",
        'Is "a  B" a word?',
        "What does len(b'a  B') return?",
        "x = '\na  B\n'",
        "‘a  B’",
        "„a  B“",
        "「a  B」",
        "Does /a  B/ match?",
        "Does ^a  B$ match?",
        "name|a  B",
    ],
)
def test_code_is_neither_collapsed_nor_casefolded(code):
    assert fold(f"{code}\n", ("collapse_spaces", "casefold")) == f"{code}\n"


def test_prose_before_the_first_sign_of_code_is_folded_and_none_behind_it():
    text = "See  This:\n  a  B\nIn  Words\nthe  Call `c  D`\nor  E"
    folded = "see this:\n  a  B\nin words\nthe  Call `c  D`\nor  E"
    assert fold(text, ("collapse_spaces", "casefold")) == folded


def test_gap_behind_the_mark_of_a_list_stays_as_it_may_make_code():
    for text in ("-     a  b", "1.     a  b", "a)     b"):
        assert fold(text, ("collapse_spaces",)) == text


def test_characters_are_composed_in_prose_and_not_in_quotations():
    assert fold("e\u0301\nlen('e\u0301')", ("unicode",)) == "\u00e9\nlen('e\u0301')"


def test_fence_behind_a_line_separator_does_not_end_a_block():
    code = "```\na\u2028```\nb  c\n```"
    assert fold(code, ("collapse_spaces",)) == code


def test_long_text_takes_linear_work():
    text = "` `` ``` " * 30_000 + "".join("`" * n + " " for n in range(1, 700))
    assert fold("a  b\n" * 1000 + text + "a  b", ALL)
    assert fold("' \n" * 300_000 + "a  b", ALL)
    assert fold("a'b " * 300_000 + "a  b", ALL)
    assert fold(" \t \n" * 300_000 + " " * 300_000, ALL) == ""


MARKDOWN = st.text(st.sampled_from("ab`~ \t\n\r#é\u0301A"), max_size=40)


@given(text=MARKDOWN, folds=st.sets(st.sampled_from([*ALL, "casefold"])))
def test_folding_changes_only_what_was_named(text, folds):
    folded = fold(text, folds)
    if "casefold" not in folds and "unicode" not in folds:
        assert "".join(folded.split()) == "".join(text.split())
    if not folds:
        assert folded == text


@given(text=st.text(st.sampled_from("ab "), max_size=30))
def test_collapsed_prose_has_no_gap_within_a_line(text):
    assert "  " not in fold("x" + text, ("collapse_spaces", "trim"))


def test_only_user_and_system_messages_are_folded():
    roles = ("system", "developer", "user", "assistant", "tool")
    fields = {"messages": [{"role": role, "content": "a  b "} for role in roles]}
    folded = normalize(Surface.CHAT, fields, ALL)
    contents = {message["role"]: message["content"] for message in folded["messages"]}
    assert contents == {
        "system": "a b",
        "developer": "a b",
        "user": "a b",
        "assistant": "a  b ",
        "tool": "a  b ",
    }
    assert fields["messages"][0]["content"] == "a  b "


def test_text_parts_are_folded_and_other_parts_are_not():
    image = {"type": "image_url", "image_url": {"url": " x  y "}}
    content = [{"type": "text", "text": "a  b "}, image]
    fields = {"messages": [{"role": "user", "content": content}]}
    (message,) = normalize(Surface.CHAT, fields, ALL)["messages"]
    assert message["content"] == [{"type": "text", "text": "a b"}, image]


def test_texts_in_several_parts_keep_their_spaces_as_one_may_begin_in_anothers_code():
    texts = ("```\r\n", "a  b", "\n``` ")
    content = [{"type": "text", "text": text} for text in texts]
    fields = {"messages": [{"role": "user", "content": content}]}
    (message,) = normalize(Surface.CHAT, fields, (*ALL, "casefold"))["messages"]
    assert [part["text"] for part in message["content"]] == ["```\n", "a  b", "\n``` "]


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
        "instructions": "a ",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "b  "}]},
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
    assert normalize(Surface.RESPONSES, {"input": "b "}, ALL) == {"input": "b"}
