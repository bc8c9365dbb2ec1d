import itertools
import re

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.call import Call, Caller, Directives, Surface
from proxy.request.fingerprint import fingerprint
from proxy.settings.config import Key, Policy
from proxy.settings.semantic import Semantic

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is a cache?"},
]
CALL = Call(
    request_id="r",
    caller=Caller(tenant="acme", credential_id="c1"),
    surface=Surface.CHAT,
    path="/chat/completions",
    query=b"",
    headers=(),
    credential=b"Bearer k",
    body=b"",
    fields={"model": "m", "messages": MESSAGES, "temperature": 0},
    model="m",
    stream=False,
    include_usage=False,
    directives=Directives(),
    received_at=0.0,
)


def of(call: Call, **changes):
    given = {
        "secret": b"secret",
        "upstream": "openai",
        "model": "m",
        "policy_name": "standard",
        "policy": Policy(),
        "semantic": True,
    }
    return fingerprint(call, **(given | changes))


def call(**changes) -> Call:
    return msgspec.structs.replace(CALL, **changes)


def with_fields(**changes) -> Call:
    return call(fields=CALL.fields | changes)


def with_prompt(text: str) -> Call:
    return with_fields(messages=[MESSAGES[0], {"role": "user", "content": text}])


def test_key_and_scope_are_64_hex_digits_and_differ():
    found = of(CALL)
    assert re.fullmatch("[0-9a-f]{64}", found.key)
    assert re.fullmatch("[0-9a-f]{64}", found.scope)
    assert found.key != found.scope
    assert found.prompt == "What is a cache?"


@pytest.mark.parametrize(
    "other",
    [
        of(CALL, secret=b"other"),
        of(CALL, upstream="azure"),
        of(CALL, model="m2"),
        of(CALL, policy_name="other"),
        of(CALL, policy=Policy(normalize=("casefold",))),
        of(CALL, policy=Policy(key=Key(include=("user",)))),
        of(CALL, policy=Policy(share="tenant")),
        of(CALL, policy=Policy(share="everyone")),
        of(call(caller=Caller(tenant="acme", credential_id="c2"))),
        of(call(caller=Caller(tenant="other", credential_id="c1"))),
        of(call(query=b"api-version=1")),
        of(call(headers=((b"openai-organization", b"o"),))),
        of(call(directives=Directives(namespace="n"))),
        of(with_fields(temperature=1)),
        of(with_fields(seed=1)),
        of(with_fields(unknown=None)),
        of(with_fields(messages=[{"role": "system", "content": "Be long."}, MESSAGES[1]])),
        of(with_fields(messages=[MESSAGES[1]])),
        of(with_fields(messages=[{**MESSAGES[0], "name": "x"}, MESSAGES[1]])),
        of(
            with_fields(
                messages=[
                    MESSAGES[0],
                    {"role": "user", "content": [{"type": "text", "text": "What is a cache?"}]},
                ]
            )
        ),
    ],
)
def test_what_decides_the_answer_changes_key_and_scope(other):
    assert other.key != of(CALL).key
    assert other.scope != of(CALL).scope


@pytest.mark.parametrize(
    "other",
    [
        call(request_id="r2", received_at=9.0, credential=b"Bearer other", body=b"x"),
        call(path="/chat/completions/", stream=True, include_usage=True),
        call(headers=((b"user-agent", b"x"), (b"traceparent", b"1"), (b"x-cache-ttl", b"5"))),
        call(directives=Directives(no_cache=True, ttl_s=5, tags=("a",), max_age_s=1)),
        with_fields(stream=True, stream_options={"include_usage": True}, user="u", metadata={}),
        with_fields(store=True, service_tier="flex", safety_identifier="s", prompt_cache_key="k"),
        with_fields(top_p=None),
    ],
)
def test_what_does_not_decide_the_answer_changes_nothing(other):
    assert of(other) == of(CALL)


def test_field_that_a_policy_puts_back_counts():
    policy = Policy(key=Key(include=("user", "metadata")))
    one = of(with_fields(user="a"), policy=policy)
    assert of(with_fields(user="b"), policy=policy).key != one.key
    assert of(with_fields(user="a", service_tier="flex"), policy=policy) == one


def test_store_counts_on_the_responses_api_only():
    def on(surface, **more):
        fields = {"model": "m", "input": "q", "messages": MESSAGES} | more
        return of(call(surface=surface, fields=fields)).key

    assert on(Surface.RESPONSES, store=True) != on(Surface.RESPONSES)
    assert on(Surface.CHAT, store=True) == on(Surface.CHAT)


@pytest.mark.parametrize(
    ("share", "caller", "same"),
    [
        ("credential", Caller(tenant="acme", credential_id="c2"), False),
        ("tenant", Caller(tenant="acme", credential_id="c2"), True),
        ("tenant", Caller(tenant="other", credential_id="c1"), False),
        ("everyone", Caller(tenant="other", credential_id="c2"), True),
    ],
)
def test_answers_are_shared_as_far_as_the_policy_says(share, caller, same):
    policy = Policy(share=share)
    mine, theirs = of(CALL, policy=policy), of(call(caller=caller), policy=policy)
    assert (mine.key == theirs.key) is same
    assert (mine.scope == theirs.scope) is same


def test_other_last_user_text_is_another_key_in_the_same_scope():
    one, other = of(with_prompt("What is a cache?")), of(with_prompt("What's a cache?"))
    assert one.key != other.key
    assert one.scope == other.scope


def test_request_that_is_not_matched_by_meaning_has_no_scope_and_the_same_key():
    exact = of(CALL, semantic=False)
    assert (exact.scope, exact.prompt) == ("", "")
    assert exact.key == of(CALL).key


def test_request_without_a_last_user_text_has_no_scope():
    messages = [*MESSAGES, {"role": "assistant", "content": "x"}]
    assert of(with_fields(messages=messages)).scope == ""


def test_folded_text_shares_the_key_and_keeps_the_original_prompt():
    policy = Policy(normalize=("trim", "collapse_spaces"))
    one, other = of(with_prompt("a  b "), policy=policy), of(with_prompt("a b"), policy=policy)
    assert one.key == other.key
    assert one.canonical == other.canonical
    assert one.prompt == "a  b "


def test_order_of_folds_does_not_count():
    folds = ("trim", "unicode", "casefold")
    keys = {of(CALL, policy=Policy(normalize=p)).key for p in itertools.permutations(folds)}
    assert len(keys) == 1


@given(st.lists(st.tuples(st.sampled_from([b"x-a", b"x-b"]), st.binary(max_size=6)), max_size=4))
def test_headers_cannot_pass_for_other_parts(headers):
    plain = of(CALL)
    found = of(call(headers=tuple(headers)))
    assert (found.key == plain.key) == (not headers)


@example(one=("ab", "", ""), two=("a", "b", ""))
@example(one=("a", "1:b", ""), two=("a1:b", "", ""))
@given(
    one=st.tuples(*[st.text("a:1", max_size=4)] * 3),
    two=st.tuples(*[st.text("a:1", max_size=4)] * 3),
)
def test_parts_cannot_be_shifted_into_each_other(one, two):
    def key(parts):
        tenant, credential_id, namespace = parts
        caller = Caller(tenant=tenant, credential_id=credential_id)
        return of(call(caller=caller, directives=Directives(namespace=namespace))).key

    assert (key(one) == key(two)) == (one == two)


def test_semantic_settings_leave_the_exact_key_alone():
    assert of(CALL, policy=Policy(semantic=Semantic())).key == of(CALL).key
