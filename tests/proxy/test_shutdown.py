"""The end of a proxy: what new connections, streams and orchestrators see after SIGTERM."""

import asyncio
import signal

import httpx
import pytest
from misbehaving import serving
from proxyprocess import Process, serving_process
from running import BEGIN, END, chunk, good, wants_stream

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: kept}}
policies:
  kept: {{}}
shutdown: {{{shutdown}}}
"""


def slow_until(go_on: asyncio.Event):
    """An upstream whose streams wait in the middle."""

    async def answer(request, writer) -> None:
        if not wants_stream(request):
            await good(request, writer)
            return
        writer.write(BEGIN + chunk({"content": "half "}))
        await writer.drain()
        await go_on.wait()
        writer.write(chunk({"content": "whole"}) + END)

    return answer


async def begin_stream(process: Process, http: httpx.AsyncClient):
    body = {"model": "test-1", "messages": [{"role": "user", "content": "?"}], "stream": True}
    request = http.build_request("POST", f"{process.url}/v1/chat/completions", json=body)
    answer = await http.send(request, stream=True)
    pieces = answer.aiter_text()
    return await anext(pieces), pieces


async def refuses_connections(process: Process) -> None:
    while True:
        try:
            async with httpx.AsyncClient() as http:
                await http.get(f"{process.url}/healthz")
        except httpx.ConnectError:
            return
        await asyncio.sleep(0.05)


async def test_within_the_grace_time_new_connections_are_served_but_it_is_not_ready(tmp_path):
    go_on = asyncio.Event()
    async with (
        serving(slow_until(go_on)) as upstream,
        serving_process(
            CONFIG.format(upstream=upstream.url, shutdown="grace: 60s, deadline: 90s"), tmp_path
        ) as process,
    ):
        assert (await process.http.get(f"{process.url}/readyz")).status_code == 200
        process.process.send_signal(signal.SIGTERM)
        while (await process.http.get(f"{process.url}/readyz")).status_code != 503:
            await asyncio.sleep(0.02)
        async with httpx.AsyncClient(timeout=30) as newcomer:
            assert (await newcomer.get(f"{process.url}/healthz")).status_code == 200
            ready = await newcomer.get(f"{process.admin_url}/readyz")
            assert (ready.status_code, ready.json()["draining"]) == (503, True)
        assert (await process.ask()).status_code == 200
        process.process.send_signal(signal.SIGTERM)
        assert await process.ends() == -signal.SIGTERM, "the second signal ends it at once"


async def test_a_stream_that_ends_before_the_deadline_ends_whole(tmp_path):
    go_on = asyncio.Event()
    async with (
        serving(slow_until(go_on)) as upstream,
        serving_process(
            CONFIG.format(upstream=upstream.url, shutdown="grace: 0s, deadline: 60s"), tmp_path
        ) as process,
    ):
        text, pieces = await begin_stream(process, process.http)
        process.process.send_signal(signal.SIGTERM)
        await refuses_connections(process)
        go_on.set()
        text += "".join([piece async for piece in pieces])
        assert "half " in text
        assert "whole" in text
        assert text.endswith("data: [DONE]\n\n")
        assert await process.ends() == 0


async def test_a_stream_that_outlasts_the_deadline_ends_with_an_error_and_not_cleanly(tmp_path):
    async with (
        serving(slow_until(asyncio.Event())) as upstream,
        serving_process(
            CONFIG.format(upstream=upstream.url, shutdown="grace: 0s, deadline: 1s"), tmp_path
        ) as process,
    ):
        text, pieces = await begin_stream(process, process.http)
        process.process.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.RemoteProtocolError):
            async for piece in pieces:
                text += piece
        assert text.splitlines()[-2].startswith('data: {"error":{"message":"the proxy is shutting')
        assert await process.ends() == 0
        await upstream.client_left.wait()


async def test_who_waits_for_a_plain_answer_at_the_deadline_is_told_to_try_again(tmp_path):
    async def never(request, writer) -> None:
        await asyncio.Event().wait()

    async with (
        serving(never) as upstream,
        serving_process(
            CONFIG.format(upstream=upstream.url, shutdown="grace: 0s, deadline: 1s"), tmp_path
        ) as process,
    ):
        asking = asyncio.create_task(process.ask())
        while not upstream.requests:
            await asyncio.sleep(0.02)
        process.process.send_signal(signal.SIGTERM)
        answer = await asking
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
        assert answer.headers["x-should-retry"] == "true"
        assert await process.ends() == 0


async def test_ctrl_c_skips_the_grace_time(tmp_path):
    async with (
        serving(good) as upstream,
        serving_process(
            CONFIG.format(upstream=upstream.url, shutdown="grace: 900s, deadline: 900s"), tmp_path
        ) as process,
    ):
        assert (await process.ask()).status_code == 200
        process.process.send_signal(signal.SIGINT)
        assert await process.ends() == 0
