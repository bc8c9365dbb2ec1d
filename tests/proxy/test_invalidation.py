import hashlib

import msgspec
import pytest

from proxy.call import Call, Caller, Directives, Surface
from proxy.request.invalidation import Tagged, TagRules, Untaggable, implicit_tags, response_tags
from proxy.settings.config import TagRule

MESSAGES = [
    {"role": "system", "content": "Use doc_id=sys1."},
    {"role": "user", "content": "What says doc_id=42 and doc_id=43?"},
    {
        "role": "assistant",
        "content": "See doc_id=99.",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "get", "arguments": '"doc_id=7"'}}
        ],
    },
    {"role": "tool", "content": [{"type": "text", "text": "doc_id=tool1"}]},
]
CALL = Call(
    request_id="r",
    caller=Caller(tenant="acme", credential_id="c"),
    surface=Surface.CHAT,
    path="/chat/completions",
    query=b"",
    headers=((b"x-doc-ids", b"1, 2,,a b"), (b"x-doc-ids", b"3")),
    credential=None,
    body=b"",
    fields={"model": "m", "messages": MESSAGES},
    model="m",
    stream=False,
    include_usage=False,
    directives=Directives(tags=("kb:x",)),
    received_at=0.0,
)
BY_HEADER = TagRule(header="X-Doc-Ids", prefix="doc:")
BY_PATTERN = TagRule(pattern=r"doc_id=(\w+)", tag=r"doc:\1")


def call(**changes) -> Call:
    return msgspec.structs.replace(CALL, **changes)


def test_without_rules_the_tags_are_those_that_the_request_names():
    assert TagRules(()).tags_of(CALL) == Tagged(tags=("kb:x",))


def test_header_rule_adds_each_member_with_its_prefix():
    found = TagRules((BY_HEADER,)).tags_of(CALL)
    assert found == Tagged(tags=("doc:1", "doc:2", "doc:3", "doc:a%20b", "kb:x"))


def test_pattern_rule_looks_at_users_systems_tools_and_tool_calls_but_not_at_answers():
    found = TagRules((BY_PATTERN,)).tags_of(CALL)
    assert found == Tagged(tags=("doc:42", "doc:43", "doc:7", "doc:sys1", "doc:tool1", "kb:x"))


@pytest.mark.parametrize(
    ("surface", "fields"),
    [
        (Surface.RESPONSES, {"input": "doc_id=1"}),
        (Surface.RESPONSES, {"instructions": "doc_id=1", "input": "q"}),
        (
            Surface.RESPONSES,
            {"input": [{"type": "function_call", "name": "f", "arguments": "doc_id=1"}]},
        ),
        (
            Surface.RESPONSES,
            {"input": [{"type": "function_call_output", "output": "doc_id=1"}]},
        ),
        (
            Surface.RESPONSES,
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "doc_id=1"}]}]},
        ),
        (Surface.COMPLETIONS, {"prompt": ["doc_id=1"]}),
    ],
)
def test_pattern_rule_looks_at_every_surface_with_texts(surface, fields):
    found = TagRules((BY_PATTERN,)).tags_of(call(surface=surface, fields=fields))
    assert found == Tagged(tags=("doc:1", "kb:x"))


def test_header_in_latin_1_names_the_tag_that_its_text_names():
    rule = TagRule(header="X-Doc-Ids", prefix="größe:")
    headers = ((b"x-doc-ids", b"caf\xe9, " + "é".encode()),)
    found = TagRules((rule,)).tags_of(call(headers=headers))
    assert found == Tagged(tags=("gr%C3%B6%C3%9Fe:%C3%A9", "gr%C3%B6%C3%9Fe:caf%C3%A9", "kb:x"))
    assert response_tags(((b"cache-tag", b"caf\xe9"),)) == Tagged(tags=("caf%C3%A9",))


@pytest.mark.parametrize(
    ("surface", "fields"),
    [
        (Surface.RESPONSES, {"input": [{"type": "custom_tool_call", "input": "doc_id=1"}]}),
        (Surface.RESPONSES, {"input": [{"type": "new_call", "args": {"x": ["doc_id=1"]}}]}),
        (Surface.RESPONSES, {"input": "q", "prompt": {"variables": {"a": "doc_id=1"}}}),
        (Surface.CHAT, {"messages": [{"role": "user", "content": [{"type": "document",
                                      "source": {"data": "doc_id=1"}}]}]}),
        (Surface.CHAT, {"messages": [{"role": "user", "content": "q", "name": "doc_id=1"}]}),
        (Surface.CHAT, {"messages": [{"role": "assistant", "content": [
            {"type": "text", "text": "doc_id=9", "annotations": [{"url": "doc_id=1"}]}]}]}),
        (Surface.CHAT, {"messages": [{"role": "assistant", "content": "doc_id=9", "tool_calls": [
            {"type": "custom", "custom": {"name": "f", "input": "doc_id=1"}}]}]}),
        (Surface.CHAT, {"messages": [], "documents": [{"title": "doc_id=1", "text": "t"}]}),
        (Surface.CHAT, {"messages": [], "chat_template_kwargs": {"documents": ["doc_id=1"]}}),
        (Surface.COMPLETIONS, {"prompt": "q", "suffix": "doc_id=1"}),
    ],
)  # fmt: skip
def test_pattern_rule_looks_wherever_a_text_may_stand(surface, fields):
    found = TagRules((BY_PATTERN,)).tags_of(call(surface=surface, fields=fields))
    assert found == Tagged(tags=("doc:1", "kb:x"))


def test_pattern_rule_reads_no_bytes_and_no_requests_for_embeddings():
    rules = TagRules((TagRule(pattern=r"(A{9})", tag=r"\1"),))
    url = "data:image/png;base64," + "A" * 4_000_000
    image = {"messages": [{"role": "user", "content": [{"image_url": {"url": url}}]}]}
    assert rules.tags_of(call(fields=image)) == Tagged(tags=("kb:x",))
    embedded = call(surface=Surface.EMBEDDINGS, fields={"input": "A" * 9})
    assert rules.tags_of(embedded) == Tagged(tags=("kb:x",))


def test_texts_however_deep_or_many_are_searched_or_given_up():
    deep: object = "doc_id=1"
    for _ in range(5_000):
        deep = [deep]
    found = TagRules((BY_PATTERN,)).tags_of(call(fields={"messages": [], "documents": deep}))
    assert found == Tagged(tags=("doc:1", "kb:x"))
    many = {"messages": [], "documents": ["doc" * 50] * 3_000_000}
    assert TagRules((BY_PATTERN,)).tags_of(call(fields=many)) == Untaggable(reason="tag_rule_slow")


def test_tag_of_a_pattern_may_use_named_groups_and_is_encoded():
    rule = TagRule(pattern=r"<(?P<name>[^>]+)>", tag=r"page:\g<name>")
    fields = {"messages": [{"role": "user", "content": "<größe, 2>"}]}
    found = TagRules((rule,)).tags_of(call(fields=fields))
    assert found == Tagged(tags=("kb:x", "page:gr%C3%B6%C3%9Fe%2C%202"))


def test_match_that_names_nothing_adds_no_tag():
    rule = TagRule(pattern=r"doc_id=(x?)", tag=r"\1")
    assert TagRules((rule,)).tags_of(CALL) == Tagged(tags=("kb:x",))


def test_more_than_128_tags_are_untaggable_and_never_half_of_them():
    many = b",".join(b"%d" % n for n in range(128))
    found = TagRules((BY_HEADER,)).tags_of(call(headers=((b"x-doc-ids", many),)))
    assert found == Untaggable(reason="tags_too_many")


def test_exactly_128_tags_are_allowed():
    many = b",".join(b"%d" % n for n in range(127))
    found = TagRules((BY_HEADER,)).tags_of(call(headers=((b"x-doc-ids", many),)))
    assert isinstance(found, Tagged)
    assert len(found.tags) == 128


def test_tag_that_is_too_long_is_untaggable():
    found = TagRules((BY_HEADER,)).tags_of(call(headers=((b"x-doc-ids", b"x" * 300),)))
    assert found == Untaggable(reason="tag_invalid")


def test_pattern_that_takes_exponential_time_is_given_up():
    rule = TagRule(pattern=r"(\w|\w\w)+!", tag=r"t:\1")
    fields = {"messages": [{"role": "user", "content": "a" * 200 + " !"}] * 50}
    assert TagRules((rule,)).tags_of(call(fields=fields)) == Untaggable(reason="tag_rule_slow")


def test_implicit_tags_name_route_policy_tenant_model_and_system_text():
    found = implicit_tags(CALL, route="routes[0]", policy_name="standard", model="gpt 4")
    digest = hashlib.sha256(b"Use doc_id=sys1.").hexdigest()
    assert found == (
        "model:gpt%204",
        "policy:standard",
        "route:routes[0]",
        f"system:{digest}",
        "tenant:acme",
    )


def test_request_without_system_text_has_no_system_tag():
    found = implicit_tags(
        call(fields={"messages": [MESSAGES[1]]}), route="r", policy_name="p", model="m"
    )
    assert found == ("model:m", "policy:p", "route:r", "tenant:acme")


@pytest.mark.parametrize(
    ("headers", "tags"),
    [
        ((), ()),
        (((b"content-type", b"a"),), ()),
        (((b"cache-tag", b"b, a"),), ("a", "b")),
        (((b"surrogate-key", b"b a"),), ("a", "b")),
        (((b"cache-groups", b'"b", "a c"'),), ("a%20c", "b")),
        (((b"cache-tag", b"a"), (b"cache-tag", b"b"), (b"surrogate-key", b"a")), ("a", "b")),
    ],
)
def test_upstream_names_tags_in_its_answer(headers, tags):
    assert response_tags(headers) == Tagged(tags=tags)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (((b"cache-tag", b"a," + b"x" * 300),), "tag_invalid"),
        (((b"cache-groups", b'"a", b c'),), "tag_invalid"),
        (((b"surrogate-key", b" ".join(b"%d" % n for n in range(129))),), "tags_too_many"),
        (
            tuple((b"cache-tag", b",".join(b"%d" % n for n in range(k, k + 65))) for k in (0, 65)),
            "tags_too_many",
        ),
    ],
)
def test_answer_whose_tags_cannot_all_be_told_is_untaggable(headers, reason):
    assert response_tags(headers) == Untaggable(reason=reason)
