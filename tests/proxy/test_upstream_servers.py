"""Upstreams of several servers and with limits: a whole proxy, real sockets on both sides."""

import asyncio
import contextlib
import json
import socket

import httpx
import pytest
from misbehaving import STREAM, Request, answering, chunked, plain, serving
from running import BEGIN, END, chunk, completion, good, running, stream_of, wants_stream

from proxy.settings.file import load

TOP = """
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
policies:
  standard: {ttl: 1h}
"""


def config(upstreams: dict, *routes: dict, **more: object) -> str:
    """JSON is YAML."""
    rest = {"upstreams": upstreams, "routes": routes or ({"to": [*upstreams]},), **more}
    return TOP + "".join(f"{key}: {json.dumps(value)}\n" for key, value in rest.items())


def dead_url() -> str:
    """Nothing listens there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@contextlib.asynccontextmanager
async def two(one=good, other=good):
    async with serving(one) as first, serving(other) as second:
        yield first, second


async def metrics(proxy) -> str:
    return (await proxy.http.get(f"{proxy.admin_url}/metrics")).text


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.005)


# Several servers


async def test_requests_go_to_the_servers_of_a_list_in_turn(tmp_path):
    async with two() as (one, other):
        text = config({"u": {"base_url": [one.url, other.url]}})
        async with running(text, tmp_path) as proxy:
            for number in range(6):
                assert (await proxy.ask(f"question {number}")).status_code == 200
    assert (len(one.requests), len(other.requests)) == (3, 3)


async def test_weights_divide_the_requests(tmp_path):
    async with two() as (one, other):
        text = config({"u": {"base_url": {one.url: 3, other.url: 1}}})
        async with running(text, tmp_path) as proxy:
            for number in range(8):
                await proxy.ask(f"question {number}")
    assert (len(one.requests), len(other.requests)) == (6, 2)


async def test_the_least_busy_server_is_asked_until_a_stream_has_ended(tmp_path):
    go_on = asyncio.Event()

    async def slow(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(BEGIN)
        await writer.drain()
        await go_on.wait()
        writer.write(END)

    async with two(slow) as (one, other):
        text = config({"u": {"base_url": [one.url, other.url], "balance": "least_busy"}})
        async with running(text, tmp_path) as proxy:
            streaming = asyncio.create_task(proxy.ask("slow", stream=True))
            await until(lambda: one.requests)
            for number in range(4):
                await proxy.ask(f"question {number}")
            assert (len(one.requests), len(other.requests)) == (1, 4)
            go_on.set()
            assert (await streaming).text.endswith("data: [DONE]\n\n")


async def test_prompts_that_begin_alike_go_to_the_same_server(tmp_path):
    async with two() as (one, other):
        text = config({"u": {"base_url": [one.url, other.url], "balance": "prefix_affinity"}})
        async with running(text, tmp_path) as proxy:
            for kind in range(8):
                system = {"role": "system", "content": f"Prompt {kind}. " + "x" * 2000}
                for number in range(3):
                    user = {"role": "user", "content": f"question {number}"}
                    await proxy.ask(messages=[system, user])
    seen = [
        {json.loads(request.body)["messages"][0]["content"] for request in server.requests}
        for server in (one, other)
    ]
    assert not seen[0] & seen[1]
    assert all(seen)
    assert len(seen[0] | seen[1]) == 8


async def test_a_dead_server_costs_no_error_and_is_shown_as_left_alone(tmp_path):
    dead = dead_url()
    async with serving(good) as live:
        text = config({"u": {"base_url": [f"{dead}/v1", f"{live.url}/v1"]}}, retry_budget=0)
        async with running(text, tmp_path) as proxy:
            for number in range(12):
                assert (await proxy.ask(f"question {number}")).status_code == 200
            shown = await metrics(proxy)
            stats = (await proxy.http.get(f"{proxy.admin_url}/cache/stats")).json()
    host = dead.removeprefix("http://")
    assert 'rejoinder_upstream_attempts_total{result="answered",upstream="u"} 12.0' in shown
    assert 'rejoinder_upstream_attempts_total{result="unreachable",upstream="u"} 3.0' in shown
    assert f'rejoinder_upstream_left_alone{{server="{host}/v1",upstream="u"}} 1.0' in shown
    by_server = {one["server"]: one["left_alone_by"] for one in stats["upstreams"]}
    assert by_server == {f"{host}/v1": 1, f"{live.url.removeprefix('http://')}/v1": 0}


# Attempts


def cut(body: bytes) -> bytes:
    """An answer that promises more than it has."""
    return plain(body)[: -len(body) // 2]


async def test_a_plain_answer_cut_in_its_middle_is_made_by_the_next_upstream(tmp_path):
    async def breaking(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(cut(completion("half")))
        await writer.drain()
        writer.close()

    async with two(breaking) as (one, other):
        text = config({"a": {"base_url": one.url}, "b": {"base_url": other.url}})
        async with running(text, tmp_path) as proxy:
            answer = await proxy.ask()
            assert answer.status_code == 200
            assert answer.json()["choices"][0]["message"]["content"] == "An answer."
    assert (len(one.requests), len(other.requests)) == (1, 1)


async def test_a_plain_answer_that_always_breaks_is_an_error_and_nothing_of_it_is_passed_on(
    tmp_path,
):
    async def breaking(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(cut(completion("half")))
        await writer.drain()
        writer.close()

    async with serving(breaking) as one:
        text = config({"a": {"base_url": one.url}}, {"to": "a", "retries": 1})
        async with running(text, tmp_path) as proxy:
            answer = await proxy.ask()
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "upstream_broken"
    assert "half" not in answer.text
    assert len(one.requests) == 2


async def test_a_server_that_closes_reused_connections_costs_no_error_and_no_retry(tmp_path):
    """As llama.cpp's server does after streams, three times in ten."""

    async def closing(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(stream_of("word") if wants_stream(request) else plain(completion()))
        await writer.drain()
        if len(server.requests) % 10 in (2, 5, 8):
            writer.close()

    async with serving(closing) as server:
        text = config({"u": {"base_url": server.url}}, {"to": "u", "retries": 0}, retry_budget=0)
        async with running(text, tmp_path) as proxy:
            for number in range(100):
                answer = await proxy.ask(f"question {number}", stream=number % 2 == 0)
                assert answer.status_code == 200, answer.text
            shown = await metrics(proxy)
    assert 'attempts_total{result="answered",upstream="u"} 100.0' in shown
    assert shown.count("rejoinder_upstream_attempts_total{") == 1


async def test_a_hedge_answers_for_a_slow_stream_and_the_slow_one_is_hung_up(tmp_path):
    async def slow(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunked(b": thinking\n\n"))
        await writer.drain()
        await one.client_left.wait()

    async with two(slow) as (one, other):
        upstreams = {"a": {"base_url": one.url}, "b": {"base_url": other.url}}
        text = config(upstreams, {"to": ["a", "b"], "hedge": {"after": "20ms"}})
        async with running(text, tmp_path) as proxy:
            answer = await proxy.ask(stream=True)
            assert answer.text.endswith("data: [DONE]\n\n")
            await one.client_left.wait()
            shown = await metrics(proxy)
    assert len(other.requests) == 1
    assert 'attempts_total{result="cancelled",upstream="a"} 1.0' in shown


async def test_what_an_upstream_says_of_its_limits_is_passed_on_unchanged(tmp_path):
    told = {
        "retry-after": "77",
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
    }
    error = b'{"error":{"message":"slow down","type":"rate_limit_error","param":null,"code":null}}'
    headers = tuple(f"{name}: {value}" for name, value in told.items())
    answer = plain(error, status="429 Too Many Requests", headers=headers)
    async with serving(answering(answer)) as server:
        text = config({"u": {"base_url": server.url}})
        async with running(text, tmp_path) as proxy:
            got = await proxy.ask()
    assert (got.status_code, got.content) == (429, error)
    assert {name: got.headers[name] for name in told} == told
    assert len(server.requests) == 1


async def test_retries_end_with_the_budget_of_the_config(tmp_path):
    failing = answering(plain(b"{}", status="500 Oops"))
    async with serving(failing) as server:
        text = config({"u": {"base_url": server.url}}, retry_budget=0)
        async with running(text, tmp_path) as proxy:
            assert (await proxy.ask()).status_code == 500
    assert len(server.requests) == 1


# Limits


async def test_more_than_allowed_waits_its_turn_and_more_than_that_is_told_to_come_back(tmp_path):
    go_on = asyncio.Event()

    async def waiting(request: Request, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(plain(completion()))

    async with serving(waiting) as server:
        limits = {"max_in_flight": 1, "queue": {"length": 2, "timeout": "60s"}}
        text = config({"u": {"base_url": server.url, **limits}})
        async with running(text, tmp_path) as proxy:
            asked = []
            for number in range(3):
                asked.append(asyncio.create_task(proxy.ask(f"question {number}")))
                await until(lambda number=number: proxy.proxy.in_flight() == number + 1)
            refused = await proxy.ask("one too many")
            go_on.set()
            answers = await asyncio.gather(*asked)
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["x-should-retry"] == "true"
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert refused.json()["error"]["code"] == "upstream_busy"
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    order = [json.loads(request.body)["messages"][0]["content"] for request in server.requests]
    assert order == ["question 0", "question 1", "question 2"]


async def test_a_client_that_leaves_the_queue_is_never_sent(tmp_path):
    go_on = asyncio.Event()

    async def waiting(request: Request, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(plain(completion()))

    async with serving(waiting) as server:
        limits = {"max_in_flight": 1, "queue": {"length": 1, "timeout": "60s"}}
        text = config({"u": {"base_url": server.url, **limits}})
        async with running(text, tmp_path) as proxy:
            first = asyncio.create_task(proxy.ask("first"))
            await until(lambda: server.requests)
            leaving = asyncio.create_task(proxy.ask("leaving"))
            await until(lambda: proxy.proxy.in_flight() == 2)
            leaving.cancel()
            await until(lambda: proxy.proxy.in_flight() == 1)
            stays = asyncio.create_task(proxy.ask("stays"))
            await until(lambda: proxy.proxy.in_flight() == 2)
            go_on.set()
            assert [(await one).status_code for one in (first, stays)] == [200, 200]
    order = [json.loads(request.body)["messages"][0]["content"] for request in server.requests]
    assert order == ["first", "stays"]


async def test_a_place_is_taken_until_the_stream_has_ended(tmp_path):
    go_on = asyncio.Event()

    async def slow(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(BEGIN + chunk({"content": "a"}))
        await writer.drain()
        await go_on.wait()
        writer.write(END)

    async with serving(slow) as server:
        limits = {"max_in_flight": 1, "queue": {"length": 0}}
        text = config({"u": {"base_url": server.url, **limits}})
        async with running(text, tmp_path) as proxy:
            streaming = asyncio.create_task(proxy.ask("slow", stream=True))
            await until(lambda: server.requests)
            assert "rejoinder_upstream_in_flight" in await metrics(proxy)
            assert (await proxy.ask("second")).status_code == 429
            go_on.set()
            assert (await streaming).status_code == 200
            assert (await proxy.ask("third", stream=True)).status_code == 200


async def test_a_reload_that_leaves_an_upstream_alone_keeps_its_places_taken(tmp_path):
    go_on = asyncio.Event()

    async def waiting(request: Request, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(plain(completion()))

    async with serving(waiting) as server:
        upstreams = {"u": {"base_url": server.url, "max_in_flight": 1, "queue": {"length": 0}}}
        async with running(config(upstreams), tmp_path) as proxy:
            first = asyncio.create_task(proxy.ask("first"))
            await until(lambda: server.requests)
            changed = tmp_path / "changed.yaml"
            changed.write_text(config(upstreams, {"to": "u", "retries": 1}))
            change = await proxy.proxy.adopt(load(changed, environ={}))
            assert change.kept == {"u"}
            assert (await proxy.ask("second")).status_code == 429
            go_on.set()
            assert (await first).status_code == 200
            assert (await proxy.ask("third")).status_code == 200


async def test_what_is_passed_through_takes_a_place_too(tmp_path):
    go_on = asyncio.Event()

    async def slow(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab")
        await writer.drain()
        await go_on.wait()
        writer.write(b"cd")

    async with serving(slow) as server:
        limits = {"max_in_flight": 1, "queue": {"length": 0}}
        text = config({"u": {"base_url": [dead_url(), server.url], **limits}})
        async with running(text, tmp_path) as proxy:
            url = f"{proxy.url}/v1/files/f1/content"
            async with proxy.http.stream("GET", url) as first:
                assert first.status_code == 200
                assert (await proxy.http.get(url)).status_code == 429
                go_on.set()
                assert await first.aread() == b"abcd"
            assert (await proxy.http.get(url)).content == b"abcd"


# Azure's form


async def test_azures_form_is_a_deployments_url_with_a_key_and_a_version(tmp_path):
    usage = {
        "prompt_tokens": 2006,
        "completion_tokens": 3,
        "total_tokens": 2009,
        "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
    }
    body = json.dumps({**json.loads(completion()), "usage": usage}).encode()

    async with serving(answering(plain(body))) as server:
        azure = {
            "base_url": f"{server.url}/openai/deployments/d1",
            "auth": "api-key",
            "credential": "own",
            "api_key": "az-key",
            "query": {"api-version": "2025-06-01"},
        }
        text = config({"azure": azure}, {"to": "azure", "cache": "standard"})
        async with running(text, tmp_path) as proxy:
            first, again = await proxy.ask(), await proxy.ask()
            shown = await metrics(proxy)
    (request,) = server.requests
    assert request.line == (
        "POST /openai/deployments/d1/chat/completions?api-version=2025-06-01 HTTP/1.1"
    )
    assert request.header("api-key") == "az-key"
    assert request.header("authorization") is None
    assert first.content == again.content == body
    assert 'upstream_tokens_total{kind="cached",upstream="azure"} 1920.0' in shown
    assert 'tokens_saved_total{direction="input",model="test-1",policy="standard"} 2006.0' in shown


# Matching and rewriting


async def test_a_rewritten_model_is_all_that_differs_in_the_forwarded_bytes(tmp_path):
    async with serving(good) as server:
        route = {"match": {"model": "gpt-*"}, "to": "u", "model": {"rewrite": "other/model-1"}}
        text = config({"u": {"base_url": server.url}}, route, aliases={"fast": "gpt-9"})
        async with running(text, tmp_path) as proxy:
            sent = (
                '{"messages":[ {"role": "user","content":"\\u00fc \\n"} ],"model":"fast",'
                '"temperature":1e-1,"strange":[1.0, {"model": "fast"}, 1.50, 1e-300]}'
            )
            headers = {"content-type": "application/json"}
            answer = await proxy.http.post(
                f"{proxy.url}/v1/chat/completions", content=sent, headers=headers
            )
            assert answer.status_code == 200
    expected = sent.replace('"model":"fast"', '"model":"other/model-1"', 1)
    assert server.requests[0].body.decode() == expected


async def test_requests_are_matched_by_body_header_tenant_and_prompt_size(tmp_path):
    async with two() as (one, other), serving(good) as third, serving(good) as fourth:
        upstreams = {
            name: {"base_url": server.url}
            for name, server in (("a", one), ("b", other), ("c", third), ("d", fourth))
        }
        text = config(
            upstreams,
            {"match": {"body": {"metadata.team": "search*"}}, "to": "a"},
            {"match": {"prompt_bytes": {"min": 100}}, "to": "b"},
            {"match": {"header": {"X-Team": "x"}, "tenant": "acme"}, "to": "c"},
            {"to": "d"},
            tenants={"keys": {"sk-one": "acme", "sk-two": "other"}},
        )
        async with running(text, tmp_path) as proxy:
            assert (await proxy.ask(metadata={"team": "search-1"})).status_code == 200
            assert (await proxy.ask("é" * 50)).status_code == 200
            assert (await proxy.ask(headers={"x-team": "x"})).status_code == 200
            assert (await proxy.ask(headers={"x-team": "x"}, key="sk-two")).status_code == 200
    assert [len(server.requests) for server in (one, other, third, fourth)] == [1, 1, 1, 1]


# Timeouts by phase


@pytest.mark.parametrize(
    ("timeout", "beginning", "phrase"),
    [
        ({"first_byte": "50ms"}, b"", "no answer within"),
        ({"total": "50ms"}, b"", "not finished within"),
        ({"idle": "50ms"}, cut(completion()), "silent for more than"),
        ({"total": "50ms"}, cut(completion()), "not finished within"),
    ],
)
async def test_each_phase_of_a_plain_answer_has_its_limit(tmp_path, timeout, beginning, phrase):
    async def stalling(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(beginning)
        await writer.drain()
        await server.client_left.wait()

    async with serving(stalling) as server:
        text = config({"u": {"base_url": server.url, "timeout": timeout}})
        async with running(text, tmp_path) as proxy:
            answer = await proxy.ask()
            await server.client_left.wait()
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "upstream_timeout"
    assert phrase in answer.json()["error"]["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert len(server.requests) == 1


async def test_the_total_limit_ends_a_stream_that_never_stops(tmp_path):
    async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(BEGIN)
        while not server.client_left.is_set():
            writer.write(chunk({"content": "more "}))
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(endless) as server:
        text = config({"u": {"base_url": server.url, "timeout": {"total": "150ms"}}})
        async with running(text, tmp_path) as proxy:
            body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
            got = b""
            with pytest.raises(httpx.RemoteProtocolError):
                async with proxy.http.stream(
                    "POST", f"{proxy.url}/v1/chat/completions", json=body
                ) as answer:
                    async for piece in answer.aiter_bytes():
                        got += piece
            await server.client_left.wait()
    assert b"not finished within" in got
    assert b"[DONE]" not in got
