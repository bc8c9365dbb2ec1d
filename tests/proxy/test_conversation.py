import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.call import Call, Caller, Directives, Surface
from proxy.errors import ClientError
from proxy.request import wire
from proxy.request.conversation import (
    last_user_text,
    last_user_words,
    system_text,
    turns,
    with_last_user_text,
)
from proxy.request.eligibility import judge
from proxy.request.fingerprint import fingerprint
from proxy.request.invalidation import TagRules, implicit_tags
from proxy.settings.config import Policy, TagRule
from proxy.settings.semantic import Semantic

TEXT = {"type": "text", "text": "q"}
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}


def chat(*messages) -> dict:
    return {"messages": list(messages)}


def user(content) -> dict:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("surface", "fields", "text"),
    [
        (Surface.CHAT, chat(user("q")), "q"),
        (Surface.CHAT, chat(user("a"), {"role": "assistant", "content": "b"}, user("q")), "q"),
        (Surface.CHAT, chat(user([TEXT])), "q"),
        (Surface.CHAT, chat(user([TEXT, TEXT])), None),
        (Surface.CHAT, chat(user([TEXT, IMAGE])), None),
        (Surface.CHAT, chat(user([])), None),
        (Surface.CHAT, chat(user(None)), None),
        (Surface.CHAT, chat(user("q"), {"role": "tool", "content": "x"}), None),
        (Surface.CHAT, chat(user("q"), {"role": "system", "content": "x"}), None),
        (Surface.RESPONSES, {"input": "q"}, "q"),
        (Surface.RESPONSES, {"input": [user([{"type": "input_text", "text": "q"}])]}, "q"),
        (Surface.RESPONSES, {"input": []}, None),
        (Surface.RESPONSES, {}, None),
        (Surface.COMPLETIONS, {"prompt": "q"}, None),
        (Surface.EMBEDDINGS, {"input": "q"}, None),
    ],
)
def test_last_user_text_is_that_of_the_last_turn_alone(surface, fields, text):
    before = copy.deepcopy(fields)
    assert last_user_text(surface, fields) == text
    other = with_last_user_text(surface, fields, "other")
    assert last_user_text(surface, other) == (None if text is None else "other")
    assert with_last_user_text(surface, other, text or "") == fields == before


def test_turns_name_roles_texts_and_what_else_is_there():
    fields = chat(
        {"role": "developer", "content": "s"},
        user([TEXT, IMAGE]),
        {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]},
        {"role": "function", "content": "r"},
    )
    found = [(t.role, t.texts, t.others) for t in turns(Surface.CHAT, fields)]
    assert found == [
        ("system", ("s",), ()),
        ("user", ("q",), ("image_url",)),
        ("assistant", (), ()),
        ("tool", ("r",), ()),
    ]


def test_words_of_the_last_user_turn_are_found_behind_other_turns():
    fields = chat(user("a"), user([TEXT, IMAGE, TEXT]), {"role": "tool", "content": "r"})
    assert last_user_words(Surface.CHAT, fields) == "q\nq"


def test_system_text_joins_all_system_messages():
    fields = chat({"role": "system", "content": "a"}, {"role": "developer", "content": "b"})
    assert system_text(Surface.CHAT, fields) == "a\nb"
    assert system_text(Surface.RESPONSES, {"instructions": "a", "input": "q"}) == "a"


SCALARS = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "user", "text", "a:b"])
)
NAMES = st.sampled_from(
    ["role", "type", "text", "content", "format", "function", "arguments", "output", "tool_calls"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=10,
)
MEMBERS = st.sampled_from(
    [
        "messages", "input", "prompt", "instructions", "tools", "tool_choice", "response_format",
        "text", "include", "n", "logprobs", "top_logprobs", "modalities", "conversation",
        "background", "web_search_options", "stream", "stream_options",
    ]
)  # fmt: skip
POLICY = Policy(semantic=Semantic(), normalize=("trim", "casefold", "collapse_spaces"))
RULES = TagRules((TagRule(pattern=r"(\w):", tag=r"t:\1"),))


@given(surface=st.sampled_from(Surface), members=st.dictionaries(MEMBERS, VALUES, max_size=4))
def test_request_that_is_let_in_can_be_judged_keyed_and_tagged(surface, members):
    fields = {"model": "m", "messages": [user("q")], "input": "q"} | members
    try:
        decoded = wire.decode(surface, json.dumps(fields).encode())
    except ClientError as error:
        assert error.param
        return
    call = Call(
        request_id="r",
        caller=Caller(tenant="t", credential_id="c"),
        surface=surface,
        path=surface.value,
        query=b"",
        headers=(),
        credential=None,
        body=decoded.body,
        fields=decoded.fields,
        model=decoded.view.model,
        stream=decoded.stream,
        include_usage=decoded.include_usage,
        directives=Directives(),
        received_at=0.0,
    )
    eligibility = judge(call, POLICY, volatile=lambda text: None)
    found = fingerprint(
        call,
        secret=b"s",
        upstream="u",
        model="m",
        policy_name="p",
        policy=POLICY,
        semantic=eligibility.semantic,
    )
    assert bool(found.scope) == eligibility.semantic
    assert RULES.tags_of(call)
    assert implicit_tags(call, route="r", policy_name="p", model="m")
