"""A remote server that dies, and the bundled engine that answers in its place: both real."""

import asyncio
import contextlib

from misbehaving import STREAM, Request, chunked, plain, serving
from running import completion, running, stream_of, wants_stream
from tinymodel import write_tiny

DEADLINE_S = 240
MODEL = "tiny"
CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  remote: {{base_url: "{url}/v1"}}
  local: {{engine: {{model: "{folder}/tiny.gguf", threads: 1}}}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{to: [remote, local], cache: standard, retries: 0}}
"""
OVERLOADED = b'data: {"error":{"message":"overloaded","type":"server_error","code":503}}\n\n'


async def refusing(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(plain(b"{}", status="503 Service Unavailable"))


async def cutting(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(plain(completion("half of an answer"))[:-60])
    await writer.drain()
    writer.close()


async def telling_an_error(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM + chunked(OVERLOADED))
    await writer.drain()
    writer.close()


async def well(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(stream_of("remote") if wants_stream(request) else plain(completion("remote")))


async def test_the_engine_answers_for_a_remote_server_as_long_as_that_is_dying(tmp_path):
    write_tiny(tmp_path / "tiny.gguf")
    mood = [refusing]

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        await mood[0](request, writer)

    async with asyncio.timeout(DEADLINE_S), contextlib.AsyncExitStack() as listening:
        remote = await listening.enter_async_context(serving(answer))
        async with running(CONFIG.format(url=remote.url, folder=tmp_path), tmp_path) as proxy:

            async def ask(text: str, *, stream: bool = False) -> str:
                got = await proxy.ask(text, stream=stream, model=MODEL, max_tokens=4, temperature=0)
                assert got.status_code == 200, got.text
                return got.text

            by_engine = f'"model":"{MODEL}"'
            assert by_engine in await ask("The server is overloaded.")
            mood[0] = cutting
            told = await ask("The server dies in the middle of its answer.")
            assert by_engine in told
            assert "half of an answer" not in told
            mood[0] = telling_an_error
            streamed = await ask("The stream begins with an error.", stream=True)
            assert by_engine in streamed
            assert "overloaded" not in streamed
            assert streamed.endswith("data: [DONE]\n\n")
            mood[0] = well
            assert "remote" in await ask("The server is well again.")
            assert "remote" in await ask("The server is well again.", stream=True)
            # The server is gone altogether.
            await listening.aclose()
            assert by_engine in await ask("Nobody is there.")

            shown = (await proxy.http.get(f"{proxy.admin_url}/metrics")).text
    for result, upstream, number in (
        ("server_error", "remote", 2), ("broken", "remote", 1), ("answered", "local", 4),
    ):  # fmt: skip
        line = f'attempts_total{{result="{result}",upstream="{upstream}"}} {number}.0'
        assert line in shown
    assert 'attempts_total{result="unreachable",upstream="remote"} 1.0' in shown
