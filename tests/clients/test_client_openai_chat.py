"""The `openai` package, plain chat: an answer from the cache is the answer of the upstream."""

import openai
import pytest
from chats import CALLS, ROBOT, TEXT, USAGE
from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


class Robot(BaseModel):
    name: str
    age: int


def messages(question: str) -> list[dict]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("chat", {}),
        ("chat", {"n": 3}),
        ("tools", {"tools": [TOOL], "parallel_tool_calls": True}),
        ("reasoning", {"reasoning_effort": "low"}),
        ("refusal", {}),
        ("cited", {}),
        ("logprobs", {"logprobs": True, "top_logprobs": 2}),
        ("structured", {"response_format": {"type": "json_object"}}),
    ],
)
def test_a_hit_equals_its_miss_in_every_field(client, upstream, seen, question, kind, more):
    first, again = (
        client.chat.completions.create(model=f"org/{kind}", messages=messages(question), **more)
        for _ in range(2)
    )
    assert seen.words == ["miss", "exact"]
    assert first.model_dump() == again.model_dump()
    assert first.to_dict() == again.to_dict()
    assert first.usage is not None
    assert first.usage.model_dump(exclude_unset=True) == USAGE
    assert len(first.choices) == more.get("n", 1)
    assert len(upstream.asks(question)) == 1


def test_tool_calls_survive_the_replay(client, seen, question):
    for _ in range(2):
        answer = client.chat.completions.create(
            model="org/tools", messages=messages(question), tools=[TOOL]
        )
        calls = answer.choices[0].message.tool_calls
        assert [call.model_dump() for call in calls] == CALLS
        assert answer.choices[0].finish_reason == "tool_calls"
    assert seen.words == ["miss", "exact"]


def test_a_turn_with_tool_results_is_a_request_of_its_own(client, seen, question):
    asked = messages(question)
    first = client.chat.completions.create(model="org/tools", messages=asked, tools=[TOOL])
    asked.append(first.choices[0].message.model_dump(exclude_none=True))
    asked += [{"role": "tool", "tool_call_id": c["id"], "content": "sunny"} for c in CALLS]
    for _ in range(2):
        last = client.chat.completions.create(model="org/tools", messages=asked, tools=[TOOL])
        assert last.choices[0].message.content == TEXT
    asked[-1] = {**asked[-1], "content": "rain"}
    client.chat.completions.create(model="org/tools", messages=asked, tools=[TOOL])
    assert seen.words == ["miss", "miss", "exact", "miss"]


def test_parse_gives_objects_from_the_cache_too(client, seen, question):
    first, again = (
        client.chat.completions.parse(
            model="org/structured", messages=messages(question), response_format=Robot
        )
        for _ in range(2)
    )
    assert first.choices[0].message.parsed == again.choices[0].message.parsed == Robot(**ROBOT)
    assert seen.words == ["miss", "exact"]


def test_parse_reads_the_arguments_of_a_replayed_tool_call(client, seen, question):
    for _ in range(2):
        answer = client.chat.completions.parse(
            model="org/structured",
            messages=messages(question),
            tools=[pydantic_function_tool(Robot)],
        )
        (call,) = answer.choices[0].message.tool_calls
        assert call.function.parsed_arguments == Robot(**ROBOT)
    assert seen.words == ["miss", "exact"]


def test_raw_responses_show_our_headers_and_no_past_ones(client, question):
    api = client.chat.completions.with_raw_response
    first, again = (api.create(model="org/chat", messages=messages(question)) for _ in range(2))
    assert first.headers["x-cache"] == "miss"
    assert first.headers["x-upstream-request-id"] == "req_of_the_upstream"
    assert first.headers["x-ratelimit-remaining-requests"] == "4999"
    assert "set-cookie" not in first.headers
    assert again.headers["x-cache"] == "exact"
    assert again.headers["age"].isdigit()
    assert again.headers["cache-status"].startswith("rejoinder; hit; ttl=")
    assert not [name for name in again.headers if name.startswith("x-ratelimit-")]
    assert "x-upstream-request-id" not in again.headers
    assert first.request_id != again.request_id
    assert first.text == again.text
    assert first.parse().model_dump() == again.parse().model_dump()
    assert first.parse()._request_id == first.request_id


def test_streaming_responses_read_plain_answers_as_they_come(client, question):
    texts = []
    for word in ("miss", "exact"):
        with client.chat.completions.with_streaming_response.create(
            model="org/chat", messages=messages(question)
        ) as response:
            assert response.headers["x-cache"] == word
            texts.append(b"".join(response.iter_bytes()))
    assert texts[0] == texts[1]


async def test_async_clients_share_with_sync_ones(async_client, client, seen, question):
    asked = {"model": "org/chat", "messages": messages(question)}
    first = await async_client.chat.completions.create(**asked)
    again = client.chat.completions.create(**asked)
    assert first.model_dump() == again.model_dump()
    assert seen.words == ["miss", "exact"]


def test_other_keys_and_other_fields_get_answers_of_their_own(client, seen, question):
    asked = {"model": "org/chat", "messages": messages(question)}
    client.chat.completions.create(**asked)
    client.chat.completions.create(**asked, temperature=0.5)
    client.chat.completions.create(**asked, extra_body={"vendor_option": {"a": 1}})
    client.chat.completions.create(**asked, extra_headers={"x-vendor": "b"})
    client.with_options(api_key="sk-other").chat.completions.create(**asked)
    client.chat.completions.create(**asked, user="u-1", metadata={"trace": "1"}, store=False)
    assert seen.words == ["miss"] * 5 + ["exact"]


def test_the_client_s_directives_travel_in_headers_and_in_the_body(
    client, upstream, seen, question
):
    asked = {"model": "org/chat", "messages": messages(question)}
    client.chat.completions.create(**asked, extra_body={"cache": {"ttl": 60}})
    client.chat.completions.create(**asked, extra_headers={"cache-control": "max-age=600"})
    client.chat.completions.create(**asked, extra_body={"cache": {"no-cache": True}})
    client.chat.completions.create(**asked, extra_body={"cache": {"no-store": True}})
    assert seen.words == ["miss", "exact", "miss", "bypass"]
    first, *_ = upstream.asks(question)
    assert "cache" not in first.json
    assert not [name for name in first.headers if name.startswith(("x-stainless", "x-cache"))]
    assert first.headers["authorization"] == "Bearer sk-test"
    assert first.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("base", ["/v1", "/v1/", "", "/"])
def test_base_urls_may_leave_out_v1_and_end_in_a_slash(proxy, upstream, question, base):
    with OpenAI(base_url=proxy.url + base, api_key="sk-test", max_retries=0) as client:
        answer = client.chat.completions.create(model="org/chat", messages=messages(question))
        assert answer.choices[0].message.content == TEXT
        assert "acme/house-model" in [model.id for model in client.models.list()]
        vectors = client.embeddings.create(model="org/embed", input=question)
        assert len(vectors.data[0].embedding) == 8
    assert {asked.path for asked in upstream.asks(question)} == {
        "/v1/chat/completions",
        "/v1/embeddings",
    }


def test_only_if_cached_without_an_entry_fails_at_once(client, upstream, question):
    with pytest.raises(openai.APIStatusError) as caught:
        client.with_options(max_retries=2).chat.completions.create(
            model="org/chat",
            messages=messages(question),
            extra_headers={"cache-control": "only-if-cached"},
        )
    assert caught.value.status_code == 504
    assert upstream.asks(question) == []
