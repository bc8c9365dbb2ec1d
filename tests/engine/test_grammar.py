import json

import pytest
from enginekit import Kit

from engine.errors import GrammarFault, RequestRefused
from engine.grammars.constraint import Constraint, Function
from engine.grammars.grammar import Grammars
from engine.grammars.matcher import Matcher
from engine.text.toolformat import HERMES, LLAMA, MISTRAL, ToolFormat

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["é", "🎉"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
ADD = Function(name="add", schema='{"type":"object","properties":{"n":{"type":"integer"}}}')
HALT = Function(name="halt", schema='{"type":"object","additionalProperties":false}')


def _matcher(tiny: Kit, constraint: Constraint, tools: ToolFormat = HERMES) -> Matcher:
    return Grammars(tiny.tokenizer, tools).compile(constraint).matcher()


def _fits(matcher: Matcher, text: str | bytes) -> bool:
    """Each byte, a token of the tiny vocabulary, is allowed where it stands; then the end."""
    for byte in text.encode() if isinstance(text, str) else text:
        if not matcher.allowed()[byte]:
            return False
        matcher.accept(byte)
    return matcher.complete or bool(matcher.allowed()[258])


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('{"a":1,"b":"é"}', True),
        ('{"a": -7, "b": "🎉"}', True),
        ('{"a":1}', False),
        ('{"a":1.5,"b":"é"}', False),
        ('{"a":1,"b":"e"}', False),
        ('{"a":1,"b":"é","c":2}', False),
        ('{"a":' + " " * 30 + '1,"b":"é"}', False),  # white space is bounded
        ("[1]", False),
    ],
)
def test_only_text_of_the_schema_is_let_through(tiny: Kit, text: str, fits: bool) -> None:
    matcher = _matcher(tiny, Constraint(schema=json.dumps(SCHEMA), strict=True))
    assert _fits(matcher, text) is fits


def test_the_end_comes_when_the_text_is_whole_and_not_before(tiny: Kit) -> None:
    matcher = _matcher(tiny, Constraint(schema=json.dumps(SCHEMA)))
    for byte in '{"a":1,"b":"é"'.encode():
        assert not matcher.allowed()[258]
        assert not matcher.complete
        matcher.accept(byte)
    matcher.accept(ord("}"))
    assert matcher.complete


def test_what_is_said_of_one_token_is_what_is_said_of_all(tiny: Kit) -> None:
    matcher = _matcher(tiny, Constraint(schema=json.dumps(SCHEMA)))
    for byte in '{"a": -12,"b":"é"}'.encode():
        assert [matcher.allows(token_id) for token_id in range(259)] == matcher.allowed().tolist()
        matcher.accept(byte)
    assert matcher.complete


def test_any_object_is_an_object(tiny: Kit) -> None:
    constraint = Constraint(schema='{"type":"object"}')
    assert _fits(_matcher(tiny, constraint), '{"x": [1, {"y": null}], "z": "ü\\n"}')
    assert not _fits(_matcher(tiny, constraint), "[1]")
    assert not _fits(_matcher(tiny, constraint), b'{"x": "\xc3("}')  # no UTF-8


@pytest.mark.parametrize(
    ("tools", "parallel", "text", "fits"),
    [
        (HERMES, True, '<tool_call>\n{"name": "add", "arguments": {"n":1}}\n</tool_call>', True),
        (HERMES, True, '<tool_call>\n{"name": "add", "arguments": {"n":"1"}}\n</tool_call>', False),
        (HERMES, True, '<tool_call>\n{"name": "sub", "arguments": {}}\n</tool_call>', False),
        (HERMES, True, 'Sure! <tool_call>', False),
        (LLAMA, True, '{"name": "add", "parameters": {"n":1}}', True),
        (LLAMA, True, '{"name": "add", "arguments": {"n":1}}', False),
        (MISTRAL, True, '[TOOL_CALLS][{"name": "halt", "arguments": {}}, '
         '{"name": "add", "arguments": {"n":1}}]', True),
        (MISTRAL, False, '[TOOL_CALLS][{"name": "halt", "arguments": {}}, ', False),
    ],
)  # fmt: skip
def test_calls_follow_the_models_format(
    tiny: Kit, tools: ToolFormat, parallel: bool, text: str, fits: bool
) -> None:
    constraint = Constraint(tools=(ADD, HALT), parallel=parallel)
    assert _fits(_matcher(tiny, constraint, tools), text) is fits


def test_one_call_or_several_as_parallel_says(tiny: Kit) -> None:
    call = '<tool_call>\n{"name": "halt", "arguments": {}}\n</tool_call>'
    for parallel in (True, False):
        constraint = Constraint(tools=(ADD, HALT), parallel=parallel)
        assert _fits(_matcher(tiny, constraint), f"{call}\n{call}") is parallel


def test_a_mark_that_is_a_control_token_is_written_as_that_token(tiny: Kit) -> None:
    tools = ToolFormat(opening="<|im_start|>", closing="", arguments="arguments", is_list=True)
    matcher = _matcher(tiny, Constraint(tools=(HALT,)), tools)
    assert matcher.allowed().nonzero()[0].tolist() == [257]
    matcher.accept(257)
    assert _fits(matcher, '[{"name": "halt", "arguments": {}}]')


def test_a_schema_or_a_call_where_both_may_come(tiny: Kit) -> None:
    constraint = Constraint(schema=json.dumps(SCHEMA), tools=(HALT,))
    call = '<tool_call>\n{"name": "halt", "arguments": {}}\n</tool_call>'
    assert _fits(_matcher(tiny, constraint), '{"a":1,"b":"é"}')
    assert _fits(_matcher(tiny, constraint), call)
    assert not _fits(_matcher(tiny, constraint), '{"a":1,"b":"é"}' + call)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "wibble"}}},
        {"$ref": "#/nowhere"},
        {"$ref": "http://example.com/schema"},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)y"}}},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
        {"type": "object", "properties": {f"p{i}": {"enum": [f"{i} {j}" for j in range(300)]}
                                          for i in range(300)}},
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_enforced_is_refused(tiny: Kit, schema: dict) -> None:
    with pytest.raises(RequestRefused) as refused:
        _matcher(tiny, Constraint(schema=json.dumps(schema), strict=True))
    assert refused.value.param == "response_format"
    for internal in ("\n<state>", "%json", "x-guidance", "at 2("):
        assert internal not in refused.value.message


def test_without_strict_keywords_beyond_grammars_are_ignored(tiny: Kit) -> None:
    schema = json.dumps({"type": "object", "properties": {"a": {"not": {"type": "string"}}}})
    assert _fits(_matcher(tiny, Constraint(schema=schema)), '{"a": 1}')


def test_a_token_that_the_grammar_refuses_is_a_fault(tiny: Kit) -> None:
    matcher = _matcher(tiny, Constraint(schema='{"type":"object"}'))
    with pytest.raises(GrammarFault):
        matcher.accept(ord("x"))


def test_matchers_of_one_grammar_go_their_own_ways(tiny: Kit) -> None:
    grammar = Grammars(tiny.tokenizer, HERMES).compile(Constraint(schema=json.dumps(SCHEMA)))
    one, other = grammar.matcher(), grammar.matcher()
    assert _fits(one, '{"a":1,"b":"é"}')
    assert _fits(other, '{"a":22,"b":"🎉"}')


def test_grammars_are_kept_up_to_a_bound(tiny: Kit) -> None:
    grammars = Grammars(tiny.tokenizer, HERMES)
    first = Constraint(schema='{"const":0}')
    kept = grammars.compile(first)
    assert grammars.compile(first) is grammars.kept(first) is kept
    for number in range(1, 65):
        grammars.compile(Constraint(schema=f'{{"const":{number}}}'))
    assert grammars.kept(first) is None
    assert grammars.kept(Constraint(schema='{"const":64}')) is not None
