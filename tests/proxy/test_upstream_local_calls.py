"""Calls of tools in a model's text: whichever pieces it comes in, the same is heard."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.toolformat import HERMES, LLAMA, MISTRAL, MISTRAL_NAMED, QWEN_CODER, ToolFormat
from proxy.upstreams.local.calls import (
    Argued,
    Called,
    ForcedCalls,
    Heard,
    Reader,
    Said,
    reader,
)
from proxy.upstreams.local.tools import FunctionBody, ToolBody, Tooling

NAMES = ("weather", "add")
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "note": {"type": ["string", "null"]}},
}
TAGGED = (
    '<tool_call>\n<function=weather>\n<parameter=city>\nZürich "}]</tool_call>\n</parameter>\n'
    "</function>\n</tool_call>"
)
CALL = '{"name": "weather", "arguments": {"city": "Zürich \\"}]</tool_call>"}}'
MARKED = f"<tool_call>\n{CALL}\n</tool_call>"


def _reader(
    form: ToolFormat = HERMES, *, parallel: bool = True, names: tuple[str, ...] = NAMES
) -> Reader:
    tools = tuple(
        ToolBody(type="function", function=FunctionBody(name=name, parameters=PARAMETERS))
        for name in names
    )
    return reader(form, Tooling(offered=tools, parallel=parallel))


def _heard(reader: Reader, pieces: list[str]) -> list[Heard]:
    return [heard for piece in pieces for heard in reader.push(piece)] + reader.close()


def _summed(heard: list[Heard]) -> tuple[str, list[tuple[str, object]]]:
    """Text, and calls by name and arguments."""
    text = "".join(one.text for one in heard if isinstance(one, Said))
    calls = []
    for called in (one for one in heard if isinstance(one, Called)):
        pieces = [a.text for a in heard if isinstance(a, Argued) and a.number == called.number]
        calls.append((called.name, json.loads("".join(pieces))))
    return text, calls


WEATHER = ("weather", {"city": 'Zürich "}]</tool_call>'})


@pytest.mark.parametrize(
    ("form", "written", "text", "calls"),
    [
        (HERMES, MARKED, "", [WEATHER]),
        (HERMES, f"{MARKED}\n{MARKED}\n", "", [WEATHER, WEATHER]),
        (HERMES, f"I look.\n\n{MARKED}\nDone.", "I look.\nDone.", [WEATHER]),
        (HERMES, f"<tool_call>{CALL}", "", [WEATHER]),
        (HERMES, f"<tool_call>[{CALL}, {CALL}]</tool_call>", "", [WEATHER, WEATHER]),
        (HERMES, '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', "",
         [("add", {"a": 1})]),
        (HERMES, '<tool_call>{"name": "add"}</tool_call>', "", [("add", {})]),
        (MISTRAL, f"[TOOL_CALLS][{CALL}]", "", [WEATHER]),
        (MISTRAL, f"[TOOL_CALLS] [{CALL}]\nmore", "\nmore", [WEATHER]),
        (LLAMA, '\n{"name": "add", "parameters": {"a": [1]}}', "", [("add", {"a": [1]})]),
        (MISTRAL_NAMED, '[TOOL_CALLS]add[ARGS]{"a": 1}', "", [("add", {"a": 1})]),
        (MISTRAL_NAMED, '[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS] weather {}', "",
         [("add", {"a": 1}), ("weather", {})]),
        (MISTRAL_NAMED, 'Sure.[TOOL_CALLS]add[CALL_ID]abc123XYZ[ARGS]{"a": {"b": "}"}}', "Sure.",
         [("add", {"a": {"b": "}"}})]),
        (MISTRAL_NAMED, f"[TOOL_CALLS] [{CALL}]", "", [WEATHER]),
        (QWEN_CODER, TAGGED, "", [WEATHER]),
        (QWEN_CODER, f"I look.\n{TAGGED}\n{TAGGED}\n", "I look.", [WEATHER, WEATHER]),
        (QWEN_CODER, "<tool_call><function=add></function></tool_call>", "", [("add", {})]),
        (QWEN_CODER, MARKED, "", [WEATHER]),
        (QWEN_CODER,
         "<tool_call><function=add><parameter=a>\n[1, 2.5]\n</parameter><parameter=city>12"
         "</parameter><parameter=b>\ntrue\n</parameter><parameter=c>two\n\nlines</parameter>"
         "<parameter=note>7</parameter></function></tool_call>", "",
         [("add", {"a": [1, 2.5], "city": "12", "b": True, "c": "two\n\nlines", "note": "7"})]),
        (QWEN_CODER,
         "<tool_call><function=add><parameter=note>null</parameter></function></tool_call>", "",
         [("add", {"note": None})]),
    ],
)  # fmt: skip
def test_a_call_is_told_from_the_text_around_it(
    form: ToolFormat, written: str, text: str, calls: list[tuple[str, object]]
) -> None:
    assert _summed(_heard(_reader(form), [written])) == (text, calls)
    assert _summed(_heard(_reader(form), list(written))) == (text, calls)


@pytest.mark.parametrize(
    ("form", "written"),
    [
        (HERMES, "Nothing to call here. "),
        (HERMES, " "),
        (HERMES, "a < b and <tool_cal"),
        (HERMES, "Write <tool_call> before a call."),
        (HERMES, '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>'),
        (HERMES, '<tool_call>{"name": "add", "arguments": [1]}</tool_call>'),
        (HERMES, '<tool_call>{"name": "add", "arguments": {}</tool_call>'),
        (HERMES, '<tool_call>{"name": "add", "arguments": {"a": 1'),
        (HERMES, '<tool_call>{"name": "add", "arguments": {"a": 01}}</tool_call> then'),
        (MISTRAL, "[TOOL_CALLS]weather"),
        (MISTRAL_NAMED, "[TOOL_CALLS] I would call nobody"),
        (MISTRAL_NAMED, "[TOOL_CALLS]weather[ARGS]"),
        (MISTRAL_NAMED, "[TOOL_CALLS]unknown[ARGS]{}"),
        (MISTRAL_NAMED, '[TOOL_CALLS]add[ARGS]{"a": 01}'),
        (QWEN_CODER, "<tool_call>\n<function=unknown>\n</function>\n</tool_call>"),
        (QWEN_CODER, "<tool_call><function=add>what is this</parameter></function></tool_call>"),
        (QWEN_CODER, "<tool_call><function=add><parameter=a>1</parameter>"),
        (QWEN_CODER, "Write <tool_call><func and go on."),
        (LLAMA, '{"answer": 42}'),
        (LLAMA, '{"name": "add", "parameters": {"a": 1}} is how one calls it'),
        (LLAMA, "The answer is {}"),
    ],
)
def test_what_only_looks_like_a_call_stays_text_to_the_letter(
    form: ToolFormat, written: str
) -> None:
    assert _summed(_heard(_reader(form), [written])) == (written, [])
    assert _summed(_heard(_reader(form), list(written))) == (written, [])


def test_one_call_is_kept_where_parallel_calls_are_not_wanted() -> None:
    heard = _heard(_reader(parallel=False), [MARKED * 3])
    assert _summed(heard) == ("", [WEATHER])


def test_text_is_not_held_back_where_no_mark_begins() -> None:
    assert _reader().push("Hello") == [Said(text="Hello")]
    assert _reader().push("a <") == [Said(text="a")]
    assert _reader(LLAMA).push(" Hi") == [Said(text=" Hi")]


def test_forced_calls_pass_arguments_on_as_they_come() -> None:
    forced = ForcedCalls()
    begun = forced.push('<tool_call>\n{"name": "weather", "arguments": {"ci')
    assert [type(one) for one in begun] == [Called, Argued]
    assert forced.push('ty": "B') == [Argued(number=0, text='ty": "B')]
    second = forced.push('"}}\n</tool_call>\n<tool_call>\n{"name": "add", "arguments": {}}')
    assert _summed([*begun, Argued(number=0, text='ty": "B'), *second]) == (
        "",
        [("weather", {"city": "B"}), ("add", {})],
    )


ALPHABET = (
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", CALL, "\n", " ", "Hi", "<tool", "{", "}", "[",
    "[ARGS]", "add", TAGGED, "<function=add>", "<parameter=a>", "</parameter>", "</function>",
    "]", '"', "\\", '{"name": "add", "arguments": {"a": 1}}', '{"name": "add", "parameters": {}}',
)  # fmt: skip


@given(
    form=st.sampled_from([HERMES, MISTRAL, LLAMA, MISTRAL_NAMED, QWEN_CODER]),
    words=st.lists(st.sampled_from(ALPHABET), max_size=12),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_the_pieces_make_no_difference(form: ToolFormat, words: list[str], cuts: list[int]) -> None:
    written = "".join(words)
    borders = [0, *sorted(min(cut, len(written)) for cut in cuts), len(written)]
    pieces = [written[start:end] for start, end in itertools.pairwise(borders)]
    assert _summed(_heard(_reader(form), pieces)) == _summed(_heard(_reader(form), [written]))
