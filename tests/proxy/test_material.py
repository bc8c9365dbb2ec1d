"""Tools that were called and documents, and the tags that rules make of them."""

import base64
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from misbehaving import plain, serving
from running import CONFIG, completion, running

from proxy.call import Surface
from proxy.errors import ClientError
from proxy.request.conversation import turns
from proxy.request.material import documents, tool_calls
from proxy.request.wire import decode


def chat_call(name: str, arguments: str) -> dict:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "c", "type": "function",
                                                 "function": function}]}  # fmt: skip


def file_part(**file) -> dict:
    return {"role": "user", "content": [{"type": "file", "file": file}]}


DATA_URL = "data:application/pdf;base64," + base64.b64encode(b"%PDF").decode()
DIGEST = hashlib.sha256(b"%PDF").hexdigest()


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ('{"id": "a"}', ("a",)),
        ('{"id": 7}', ("7",)),
        ('{"id": ["a", 7, null, true]}', ("a", "7")),
        ('{"other": 1}', ()),
        ('{"id": {"x": 1}}', ()),
        ("not json", ()),
        ("[1]", ()),
    ],
)
def test_arguments_are_read_as_far_as_they_are_text_or_numbers(arguments, values):
    (call,) = tool_calls(Surface.CHAT, {"messages": [chat_call("f", arguments)]})
    assert (call.name, call.values("id")) == ("f", values)


def test_calls_of_the_responses_api_are_found():
    items = [
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "name": "g", "input": "text"},
        {"type": "function_call_output", "call_id": "x", "output": "y"},
    ]
    assert [call.name for call in tool_calls(Surface.RESPONSES, {"input": items})] == ["f", "g"]


def test_documents_are_named_by_their_content_wherever_it_came_from():
    assert list(documents(Surface.CHAT, {"messages": [file_part(file_data=DATA_URL)]})) == [DIGEST]
    item = {"role": "user", "content": [{"type": "input_file", "file_data": DATA_URL}]}
    assert list(documents(Surface.RESPONSES, {"input": [item]})) == [DIGEST]
    assert list(documents(Surface.CHAT, {"messages": [file_part(file_id="file-1")]})) == ["file-1"]
    broken = file_part(file_data="data:x;base64,###")
    assert len(list(documents(Surface.CHAT, {"messages": [broken]}))) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "function", "file", "file_data", "arguments", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(st.sampled_from([Surface.CHAT, Surface.RESPONSES]), json_values, json_values, json_values)
def test_whatever_decoding_lets_in_is_read(surface, calls, content, kind):
    message = {"role": "user", "content": content, "tool_calls": calls, "type": kind}
    name = "messages" if surface is Surface.CHAT else "input"
    body = json.dumps({"model": "m", name: [message]}).encode()
    try:
        fields = decode(surface, body).fields
    except ClientError:  # refused: not what is tested here
        return
    for call in tool_calls(surface, fields):
        call.values("x")
    list(documents(surface, fields))
    list(turns(surface, fields))


@pytest.mark.parametrize(
    ("rule", "message", "tag"),
    [
        ('{tool: "search_*", argument: doc, prefix: "doc:"}',
         chat_call("search_docs", '{"doc": "42"}'), "doc:42"),
        ('{tool: "search_*", prefix: "tool:"}', chat_call("search_docs", "{}"),
         "tool:search_docs"),
        ('{documents: true, prefix: "file:"}', file_part(file_data=DATA_URL), f"file:{DIGEST}"),
    ],
)  # fmt: skip
async def test_a_purge_takes_back_what_was_made_from_a_tool_or_a_document(
    tmp_path, rule, message, tag
):
    async def answer(_request, writer):
        writer.write(plain(completion()))

    policy = f", tags: [{rule}]"
    async with (
        serving(answer) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=policy), tmp_path) as p,
    ):
        messages = [message, {"role": "user", "content": "so?"}]
        words = [(await p.ask(messages=messages)).headers["x-cache"] for _ in range(2)]
        await p.ask("something else")
        other = await p.purge(tags=[f"{tag}x"])
        purged = await p.purge(tags=[tag])
        words.append((await p.ask(messages=messages)).headers["x-cache"])
    assert words == ["miss", "exact", "miss"]
    assert (other["matched"], purged["matched"]) == (0, 1)
