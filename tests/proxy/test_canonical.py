import json
import random
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from proxy.call import Surface
from proxy.request import canonical, wire

PARAMS = {
    Surface.CHAT: chat_create_params.CompletionCreateParams,
    Surface.COMPLETIONS: completion_create_params.CompletionCreateParams,
    Surface.EMBEDDINGS: embedding_create_params.EmbeddingCreateParams,
    Surface.RESPONSES: response_create_params.ResponseCreateParams,
}

COUNTED = {
    Surface.CHAT: {
        "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
        "max_completion_tokens", "max_tokens", "messages", "modalities", "model", "moderation", "n",
        "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_options",
        "prompt_cache_retention", "reasoning_effort", "response_format", "seed", "stop",
        "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "verbosity",
        "web_search_options",
    },
    Surface.COMPLETIONS: {
        "best_of", "echo", "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "model",
        "n", "presence_penalty", "prompt", "seed", "stop", "suffix", "temperature", "top_p",
    },
    Surface.EMBEDDINGS: {"dimensions", "input", "model"},
    Surface.RESPONSES: {
        "access_programs", "background", "background_options", "context_management", "conversation",
        "image", "include", "input", "instructions", "max_output_tokens", "max_tool_calls", "model",
        "moderation", "parallel_tool_calls", "previous_response_id", "prompt",
        "prompt_cache_options", "prompt_cache_retention", "reasoning", "store", "temperature",
        "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation",
    },
}  # fmt: skip
"""What the key holds, by surface. A new field of the API belongs here, or among the omitted ones
with its reason."""


def fields_of(surface: Surface) -> dict[str, object]:
    forms = typing.get_args(PARAMS[surface]) or (PARAMS[surface],)
    hints: dict[str, object] = {}
    for form in forms:
        hints |= typing.get_type_hints(form)
    return hints


def counts(surface: Surface, fields: dict, **more) -> bytes:
    return canonical.encode(canonical.effective(surface, fields, model="m", **more))


@pytest.mark.parametrize("surface", Surface)
def test_every_field_of_the_api_is_counted_or_omitted_for_a_reason(surface):
    omitted = canonical.OMITTED_ON[surface]
    known = fields_of(surface)
    assert set(known) - set(omitted) == COUNTED[surface]
    assert all(omitted.values())


@pytest.mark.parametrize("surface", Surface)
def test_field_changes_the_canonical_form_exactly_when_it_counts(surface):
    for name in fields_of(surface):
        if name == "model":
            continue
        one, other = counts(surface, {name: "a"}), counts(surface, {name: "b"})
        assert (one != other) == (name in COUNTED[surface]), name


@pytest.mark.parametrize("surface", Surface)
def test_null_is_taken_for_absent_only_where_the_api_allows_null(surface):
    hints = fields_of(surface)
    for name in canonical.NULL_IS_ABSENT[surface]:
        assert type(None) in typing.get_args(typing.get_args(hints[name])[0] or hints[name]) or (
            type(None) in typing.get_args(hints[name])
        ), name
        assert counts(surface, {name: None}) == counts(surface, {})
    assert counts(surface, {"tools": None}) != counts(surface, {})


@pytest.mark.parametrize("surface", Surface)
def test_field_that_nobody_knows_counts(surface):
    assert counts(surface, {"x": 1}) != counts(surface, {})
    assert counts(surface, {"x": None}) != counts(surface, {})


def test_omitted_field_can_be_put_back():
    one = counts(Surface.CHAT, {"user": "a"}, included=("user",))
    other = counts(Surface.CHAT, {"user": "b"}, included=("user",))
    assert one != other


def test_model_that_is_asked_for_takes_the_place_of_the_written_one():
    assert counts(Surface.CHAT, {"model": "alias"}) == counts(Surface.CHAT, {"model": "m"})


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value, chance: random.Random):
    if isinstance(value, dict):
        items = list(value.items())
        chance.shuffle(items)
        return {name: shuffled(member, chance) for name, member in items}
    if isinstance(value, list):
        return [shuffled(item, chance) for item in value]
    return value


def respelled(value):
    """The same numbers written in another way."""
    if isinstance(value, dict):
        return {name: respelled(member) for name, member in value.items()}
    if isinstance(value, list):
        return [respelled(item) for item in value]
    if type(value) is int and abs(value) < 2**53:
        return float(value)
    if type(value) is float and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def form(value, **dump) -> bytes:
    request = {"model": "m", "messages": [{"role": "user", "content": "q"}], "x": value}
    decoded = wire.decode(Surface.CHAT, json.dumps(request, **dump).encode())
    return counts(Surface.CHAT, decoded.fields)


@given(value=JSON, seed=st.integers(0, 2**32), ascii_only=st.booleans(), indent=st.integers(0, 3))
def test_spelling_of_the_json_does_not_count(value, seed, ascii_only, indent):
    other = respelled(shuffled(value, random.Random(seed)))
    assert form(value) == form(other, ensure_ascii=ascii_only, indent=indent)


def key_of(value) -> object:
    """A value under which exactly equal JSON is equal: booleans are no numbers."""
    if isinstance(value, dict):
        return frozenset((name, key_of(member)) for name, member in value.items())
    if isinstance(value, list):
        return tuple(map(key_of, value))
    return type(value) is bool, type(value) is str, value


@given(one=JSON, other=JSON)
def test_two_values_have_one_form_only_if_they_are_equal(one, other):
    assert (form(one) == form(other)) == (key_of(one) == key_of(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, 2], [2, 1]),
        (True, 1),
        (False, 0),
        ("1", 1),
        (None, "null"),
        ({}, []),
        ("a", "a "),
        ("\u00e9", "e\u0301"),
        (2**64, 2**64 + 1),
        (10**30, 1e30),
        (2**60, float(2**60)),
        ({"a": None}, {}),
    ],
)
def test_values_that_differ_have_two_forms(one, other):
    assert form(one) != form(other)
