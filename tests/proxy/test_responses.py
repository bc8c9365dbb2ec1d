"""The Responses API and legacy completions over real sockets, in both forms."""

import json

import httpx
import openai
import pytest
from misbehaving import LAST_CHUNK, STREAM, chunked, plain, serving
from running import CONFIG, Running, running, wants_stream

from proxy.answer.events import events


def config(upstream, policy: str = "") -> str:
    return CONFIG.format(upstream=upstream.url, options="", policy=policy)


def response(text: str = "An answer.", **more) -> dict:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "status": "completed",
        "model": "test-1",
        "output": [
            {"id": "rs_1", "type": "reasoning", "summary": []},
            {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
             "content": [part]},
        ],
        "usage": {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8,
                  "input_tokens_details": {"cached_tokens": 0},
                  "output_tokens_details": {"reasoning_tokens": 1}},
        "unknown_field": {"kept": True},
        **more,
    }  # fmt: skip


def frame(kind: str, **members) -> bytes:
    event = {"type": kind, **members}
    return chunked(b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps(event).encode()))


def streamed(whole: dict) -> bytes:
    """As OpenAI streams it: typed events, the last with the whole response, and no `[DONE]`."""
    text = whole["output"][-1]["content"][0]["text"]
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    frames = [frame("response.created", response=begun, sequence_number=0)]
    for index, item in enumerate(whole["output"]):
        begun_item = {**item, "content": []} if "content" in item else item
        frames.append(frame("response.output_item.added", output_index=index, item=begun_item,
                            sequence_number=0))  # fmt: skip
    empty = {"type": "output_text", "text": "", "annotations": []}
    frames.append(frame("response.content_part.added", item_id="msg_1", output_index=1,
                        content_index=0, part=empty, sequence_number=0))  # fmt: skip
    for number, word in enumerate(text.partition(" "), 1):
        frames.append(
            frame("response.output_text.delta", item_id="msg_1", output_index=1, content_index=0,
                  delta=word, sequence_number=number, logprobs=[])
        )  # fmt: skip
    frames.append(frame("response.completed", response=whole, sequence_number=9))
    return STREAM + b"".join(frames) + LAST_CHUNK


async def good(request, writer):
    whole = response()
    writer.write(streamed(whole) if wants_stream(request) else plain(json.dumps(whole).encode()))


async def respond(p: Running, given="What is a cache?", **more) -> httpx.Response:
    return await p.http.post(
        f"{p.url}/v1/responses",
        json={"model": "test-1", "input": given, **more},
        headers={"authorization": "Bearer sk-one"},
    )


def kinds(text: str) -> list[str]:
    return [line[7:] for line in text.split("\n") if line.startswith("event: ")]


def last_response(text: str) -> dict:
    return json.loads(text.strip().rpartition("data: ")[2])["response"]


@pytest.mark.parametrize("first_streams", [False, True])
async def test_one_entry_serves_both_forms(tmp_path, first_streams):
    async with serving(good) as upstream, running(config(upstream), tmp_path) as p:
        first = await respond(p, stream=first_streams)
        whole = await respond(p)
        stream = await respond(p, stream=True)
    assert [a.headers["x-cache"] for a in (first, whole, stream)] == ["miss", "exact", "exact"]
    assert len(upstream.requests) == 1
    assert whole.json() == response()
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert last_response(stream.text) == response()
    assert kinds(stream.text)[0] == "response.created"
    assert kinds(stream.text)[-1] == "response.completed"
    assert "[DONE]" not in stream.text
    if first_streams:
        assert stream.text == first.text
        assert first.content == b"".join(
            piece for piece in streamed(response()).split(b"\r\n") if piece.startswith(b"event")
        )
    else:
        assert stream.content == events(first.content)


async def test_an_sdk_reads_misses_and_replays_alike(tmp_path):
    async with serving(good) as upstream, running(config(upstream), tmp_path) as p:
        client = p.openai()
        seen = []
        for _ in range(2):
            async with client.responses.stream(model="test-1", input="hi") as stream:
                types = [event.type async for event in stream]
                final = await stream.get_final_response()
            seen.append((types, final.output_text, final.usage.total_tokens))
        plain_form = await client.responses.create(model="test-1", input="hi")
        await client.close()
    assert seen[0] == seen[1]
    assert seen[0][1:] == ("An answer.", 8)
    assert plain_form.output_text == "An answer."
    assert len(upstream.requests) == 1


async def test_stream_options_are_not_put_into_a_responses_request(tmp_path):
    async with serving(good) as upstream, running(config(upstream), tmp_path) as p:
        await respond(p, stream=True)
    assert "stream_options" not in json.loads(upstream.requests[0].body)


@pytest.mark.parametrize("terminal", ["response.failed", "response.incomplete"])
async def test_what_failed_or_is_incomplete_is_passed_on_and_not_stored(tmp_path, terminal):
    status = terminal.partition(".")[2]
    whole = response(status=status, error={"code": "server_error", "message": "no"})

    async def answer(_request, writer):
        begun = frame("response.created", response={**whole, "output": []}, sequence_number=0)
        writer.write(STREAM + begun + frame(terminal, response=whole, sequence_number=1))
        writer.write(LAST_CHUNK)

    async with serving(answer) as upstream, running(config(upstream), tmp_path) as p:
        answers = [await respond(p, stream=True) for _ in range(2)]
    assert [a.headers["x-cache"] for a in answers] == ["miss", "miss"]
    assert kinds(answers[0].text) == ["response.created", terminal]
    assert len(upstream.requests) == 2


@pytest.mark.parametrize("status", ["incomplete", "in_progress", "failed", "queued"])
async def test_a_plain_response_that_is_not_completed_is_not_stored(tmp_path, status):
    async def answer(_request, writer):
        writer.write(plain(json.dumps(response(status=status)).encode()))

    async with serving(answer) as upstream, running(config(upstream), tmp_path) as p:
        answers = [await respond(p) for _ in range(2)]
    assert [a.headers["x-cache"] for a in answers] == ["miss", "miss"]
    assert answers[1].json()["status"] == status
    assert len(upstream.requests) == 2


async def test_an_error_event_of_the_upstream_reaches_the_client_and_nothing_is_stored(tmp_path):
    async def answer(_request, writer):
        writer.write(STREAM + frame("response.created", response=response(), sequence_number=0))
        writer.write(frame("error", code="server_error", message="it broke", param=None,
                           sequence_number=1))  # fmt: skip
        writer.write(LAST_CHUNK)

    async with serving(answer) as upstream, running(config(upstream), tmp_path) as p:
        client = p.openai()
        for _ in range(2):
            seen = []
            with pytest.raises((openai.APIError, httpx.RemoteProtocolError)):
                async for event in await client.responses.create(
                    model="test-1", input="hi", stream=True
                ):
                    seen.append(event.type)
        await client.close()
    assert seen == ["response.created", "error"]
    assert len(upstream.requests) == 2


async def test_a_stream_that_is_cut_ends_with_an_error_event_of_this_api(tmp_path):
    async def answer(_request, writer):
        writer.write(STREAM + frame("response.created", response=response(), sequence_number=0))
        await writer.drain()
        writer.close()

    async with serving(answer) as upstream, running(config(upstream), tmp_path) as p:
        text = ""
        with pytest.raises(httpx.RemoteProtocolError):
            async with p.http.stream(
                "POST", f"{p.url}/v1/responses", json={"model": "test-1", "input": "x",
                                                       "stream": True}
            ) as answered:  # fmt: skip
                async for piece in answered.aiter_text():
                    text += piece
        client = p.openai()
        with pytest.raises(openai.APIError, match="broke"):
            async for _event in await client.responses.create(
                model="test-1", input="hi", stream=True
            ):
                pass
        await client.close()
    assert kinds(text) == ["response.created", "error"]
    event = json.loads(text.strip().rpartition("data: ")[2])
    assert (event["type"], event["sequence_number"]) == ("error", 1)
    assert event["message"] == event["error"]["message"]
    assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"previous_response_id": "resp_0"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "hosted_tools"),
        ({"tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]}, "hosted_tools"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "item_reference"),
        ({"cache": {"no-store": True}}, "no_store"),
    ],
)
async def test_what_leans_on_the_provider_s_memory_or_the_world_is_a_bypass(tmp_path, more, reason):
    async with serving(good) as upstream, running(config(upstream), tmp_path) as p:
        given = more.pop("input", "x")
        answers = [await respond(p, given, **more) for _ in range(2)]
    assert [a.headers["x-cache"] for a in answers] == ["bypass", "bypass"]
    assert answers[0].headers["cache-status"] == f"rejoinder; fwd=bypass; detail={reason}"
    assert len(upstream.requests) == 2


async def test_client_side_tools_do_not_stop_the_exact_tier(tmp_path):
    tools = [{"type": "function", "name": "f", "parameters": {}}]
    async with serving(good) as upstream, running(config(upstream), tmp_path) as p:
        answers = [await respond(p, tools=tools) for _ in range(2)]
    assert [a.headers["x-cache"] for a in answers] == ["miss", "exact"]
    assert len(upstream.requests) == 1


async def test_store_counts_on_responses(tmp_path):
    async with serving(good) as upstream, running(config(upstream), tmp_path) as p:
        answers = [await respond(p, store=store) for store in (True, False, True)]
    assert [a.headers["x-cache"] for a in answers] == ["miss", "miss", "exact"]
    assert len(upstream.requests) == 2


# Legacy completions


def text_completion(text: str = "An answer.") -> dict:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1700000000,
        "model": "test-1",
        "choices": [choice],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
    }


def text_chunk(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    whole = {**text_completion(), "choices": [choice]}
    del whole["usage"]
    return chunked(b"data: " + json.dumps(whole).encode() + b"\n\n")


async def legacy(request, writer):
    if not wants_stream(request):
        writer.write(plain(json.dumps(text_completion()).encode()))
        return
    usage = {**text_completion(), "choices": []}
    writer.write(STREAM + text_chunk("An ") + text_chunk("answer.") + text_chunk("", "stop"))
    writer.write(chunked(b"data: " + json.dumps(usage).encode() + b"\n\n"))
    writer.write(chunked(b"data: [DONE]\n\n") + LAST_CHUNK)


@pytest.mark.parametrize("first_streams", [False, True])
async def test_legacy_completions_are_served_in_both_forms(tmp_path, first_streams):
    async def complete(p: Running, **more) -> httpx.Response:
        body = {"model": "test-1", "prompt": "What is a cache?", **more}
        return await p.http.post(f"{p.url}/v1/completions", json=body)

    async with serving(legacy) as upstream, running(config(upstream), tmp_path) as p:
        first = await complete(p, stream=first_streams)
        whole = await complete(p)
        stream = await complete(p, stream=True)
        with_usage = await complete(p, stream=True, stream_options={"include_usage": True})
    words = [a.headers["x-cache"] for a in (first, whole, stream, with_usage)]
    assert words == ["miss", "exact", "exact", "exact"]
    assert whole.json() == text_completion()
    data = [line[6:] for line in stream.text.split("\n") if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    chunks = [json.loads(one) for one in data[:-1]]
    assert "".join(c["text"] for chunk in chunks for c in chunk["choices"]) == "An answer."
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert '"usage"' not in stream.text
    assert '"total_tokens":8' in with_usage.text.replace(" ", "")
    assert len(upstream.requests) == 1


async def legacy_of_each(request, writer):
    (choice,) = text_completion()["choices"]
    choices = [{**choice, "index": n} for n, _ in enumerate(json.loads(request.body)["prompt"])]
    writer.write(plain(json.dumps({**text_completion(), "choices": choices}).encode()))


async def test_one_choice_for_several_prompts_is_not_kept(tmp_path):
    async with serving(legacy) as upstream, running(config(upstream), tmp_path) as p:
        for _ in range(2):
            body = {"model": "test-1", "prompt": ["a", "b"]}
            await p.http.post(f"{p.url}/v1/completions", json=body)
    assert len(upstream.requests) == 2


async def test_several_prompts_of_one_completion_make_one_entry(tmp_path):
    async with serving(legacy_of_each) as upstream, running(config(upstream), tmp_path) as p:
        client = p.openai()
        for prompt in (["a", "b"], ["a", "b"], ["b", "a"]):
            await client.completions.create(model="test-1", prompt=prompt)
        await client.close()
    assert len(upstream.requests) == 2
