"""The worker as a process of its own, on the tiny model: only what crosses the border."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from enginekit import Tiny

from engine.config import EngineConfig
from engine.errors import EngineDied, EngineDown, ModelUnusable, RequestRefused
from engine.process.client import EngineClient
from engine.process.generation import Generation
from engine.process.protocol import (
    Configure,
    Delta,
    Finished,
    FrameBuffer,
    FromWorker,
    Inspect,
    Message,
    Ready,
    Request,
    ToolCall,
    Unusable,
    frame,
)
from engine.sampling import Sampling

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEADLINE_S = 120.0
LONG = Sampling(temperature=0, max_tokens=400, logit_bias={258: -100.0})


def _config(tiny_files: Tiny, **fields: object) -> EngineConfig:
    return EngineConfig(model=str(tiny_files.path), weights="fp32", threads=1, **fields)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tiny_files: Tiny) -> AsyncIterator[EngineClient]:
    client = EngineClient(_config(tiny_files))
    await client.start()
    await client.ready(timeout_s=DEADLINE_S)
    yield client
    await client.close()


async def _text(generation: Generation) -> str:
    async with asyncio.timeout(DEADLINE_S):
        await generation.started()
        return "".join([event.text async for event in generation if isinstance(event, Delta)])


async def _idle(client: EngineClient) -> None:
    """Returns when nothing runs and no page is held; the worker answers between two steps."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            now = await client.inspect()
            if not now.running and not now.waiting:
                assert now.free_pages == now.num_pages
                return


async def test_an_answer_comes_in_order_and_ends(client: EngineClient) -> None:
    request = Request(prompt="abc", sampling=Sampling(temperature=0, max_tokens=5))
    async with client.generate(request) as generation:
        assert await generation.started() == 3
        events = [event async for event in generation]
    assert isinstance(events[-1], Finished)
    assert all(isinstance(event, Delta) for event in events[:-1])
    assert client.state() == "ready"


async def test_requests_run_together_and_answer_as_they_do_alone(client: EngineClient) -> None:
    sampling = Sampling(temperature=0, max_tokens=40)
    requests = [
        Request(messages=(Message(role="user", content=text * 5),), sampling=sampling)
        for text in ("red", "green", "blue", "Gelb", "rosa", "灰")
    ]
    alone = [await _text(client.generate(request)) for request in requests]
    together = await asyncio.gather(*(_text(client.generate(request)) for request in requests))
    assert together == alone


async def test_a_request_that_is_refused_says_why(client: EngineClient) -> None:
    generation = client.generate(Request(prompt="x" * 600))
    with pytest.raises(RequestRefused) as caught:
        await generation.started()
    assert caught.value.code == "context_length_exceeded"


async def test_a_request_nested_too_deep_fails_alone(client: EngineClient) -> None:
    deep: dict[str, object] = {}
    for _ in range(900):
        deep = {"a": deep}
    pid = client.worker_pid
    called = Message(role="assistant", tool_calls=(ToolCall(id="1", name="f", arguments=deep),))
    with pytest.raises(RequestRefused):
        await _text(client.generate(Request(messages=(called,), tools=({"function": deep},))))
    await _idle(client)
    assert client.worker_pid == pid


async def test_what_cannot_be_written_leaves_nothing_waiting(client: EngineClient) -> None:
    with pytest.raises(OverflowError):
        client.generate(Request(prompt="a", sampling=Sampling(seed=2**70)))
    assert client._generations == {}
    with pytest.raises(OverflowError):
        client.generate(
            Request(prompt="a", sampling=LONG), Request(prompt="a", sampling=Sampling(seed=2**70))
        )
    await _idle(client)
    assert client._generations == {}


async def _underway(client: EngineClient, request: Request) -> Generation:
    """All its choices are seen to run. On a busy machine an answer may be over before anybody
    looks: then it is asked again."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            generation = client.generate(request)
            await generation.started()
            while (now := await client.inspect()).running + now.waiting:
                if now.running == request.num_choices:
                    return generation
            await generation.aclose()


async def test_closing_an_answer_frees_its_pages(client: EngineClient) -> None:
    generation = await _underway(client, Request(prompt="abc", sampling=LONG, num_choices=4))
    await anext(generation)
    await generation.aclose()
    # Frames are obeyed in order, so the abort comes before this look.
    now = await client.inspect()
    assert now.running == 0
    assert now.free_pages == now.num_pages
    with pytest.raises(StopAsyncIteration):
        await anext(generation)


async def test_cancelling_the_reader_frees_the_pages(client: EngineClient) -> None:
    generation = await _underway(client, Request(prompt="abc", sampling=LONG))
    begun = asyncio.Event()
    reading = asyncio.create_task(_read(generation, begun))
    await begun.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await _idle(client)


async def _read(generation: Generation, begun: asyncio.Event) -> None:
    async with generation:
        async for _ in generation:
            begun.set()
        await asyncio.Event().wait()


async def test_a_killed_worker_fails_what_was_in_flight_and_comes_back(
    client: EngineClient,
) -> None:
    restarts = (await client.inspect()).restarts
    before = await _text(client.generate(Request(prompt="abc", sampling=LONG)))
    generation = client.generate(Request(prompt="abc", sampling=LONG))
    await generation.started()
    assert client.worker_pid is not None
    os.kill(client.worker_pid, signal.SIGKILL)
    with pytest.raises(EngineDied):
        async for _ in generation:
            pass
    assert client.state() != "ready"
    with pytest.raises(EngineDown):
        client.generate(Request(prompt="abc"))
    await client.ready(timeout_s=DEADLINE_S)
    assert await _text(client.generate(Request(prompt="abc", sampling=LONG))) == before
    assert (await client.inspect()).restarts == restarts + 1


async def test_a_model_that_cannot_be_used_is_said_and_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"nonsense" * 64)
    client = EngineClient(EngineConfig(model=str(path)))
    await client.start()
    with pytest.raises(ModelUnusable, match="not a readable GGUF"):
        await client.ready(timeout_s=DEADLINE_S)
    assert "not a readable GGUF" in client.state()
    await client.close()


async def test_a_client_that_is_closed_takes_its_worker_along(tiny_files: Tiny) -> None:
    progress: list[float] = []
    client = EngineClient(
        _config(tiny_files), on_progress=lambda loading: progress.append(loading.fraction)
    )
    with pytest.raises(EngineDown):
        await client.ready(timeout_s=1)
    await client.start()
    assert client.state() == "loading"
    await client.ready(timeout_s=DEADLINE_S)
    assert progress == sorted(progress)
    assert progress[-1] == 1.0
    pid = client.worker_pid
    assert pid is not None
    await client.close()
    await client.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert client.state() == "closed"
    with pytest.raises(EngineDown):
        await client.ready(timeout_s=1)


async def test_a_worker_whose_parent_dies_ends_too(tiny_files: Tiny) -> None:
    """The parent is killed, so that nothing of it can tidy up."""
    script = (
        "import asyncio, os, sys\n"
        "from engine.process.client import EngineClient\n"
        "from engine.config import EngineConfig\n"
        "async def main():\n"
        "    client = EngineClient(EngineConfig(model=sys.argv[1], threads=1))\n"
        "    await client.start()\n"
        f"    await client.ready(timeout_s={DEADLINE_S})\n"
        "    print(client.worker_pid, flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tiny_files.path), stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        worker_pid = int(await parent.stdout.readline())
        parent.kill()
        await parent.wait()
        while Path(f"/proc/{worker_pid}").exists() and not _is_zombie(worker_pid):
            await asyncio.sleep(0.01)


def _is_zombie(pid: int) -> bool:
    """Dead, and not yet collected by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_a_worker_that_cannot_be_started_for_a_while_is_there_after_it(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.worker_pid is not None
    tried = asyncio.Event()

    def no_process(*_: object, **__: object) -> None:
        tried.set()
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", no_process)
        os.kill(client.worker_pid, signal.SIGKILL)
        async with asyncio.timeout(DEADLINE_S):
            await tried.wait()
    await client.ready(timeout_s=DEADLINE_S)
    assert client.state() == "ready"


@contextlib.asynccontextmanager
async def _workers_that_say(path: Path, *said: bytes) -> AsyncIterator[None]:
    """One after the other; the last one stays."""
    left, writers = list(said), []

    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(left.pop(0))
        if left:
            writer.close()

    server = await asyncio.start_unix_server(speak, path=path)
    yield
    server.close()
    for writer in writers:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "first",
    [
        struct.pack("<I", 2**31),
        struct.pack("<I", 2) + b"\xc1\xc1",
        frame(Unusable(message="out of memory", passing=True)),
    ],
    ids=["no length", "no message", "too little memory at loading"],
)
async def test_what_a_worker_fails_with_is_no_matter_to_the_next(
    tmp_path: Path, first: bytes
) -> None:
    ready = Ready(max_context=1, weights="", page_bytes=1, bytes_per_token=1)
    path = tmp_path / "worker.sock"
    client = EngineClient(EngineConfig(model=""), shared=str(path))
    async with _workers_that_say(path, first, frame(ready)):
        await client.start()
        assert await client.ready(timeout_s=DEADLINE_S) == ready
        await client.close()


@pytest.mark.parametrize(
    "last", [frame(Inspect()), struct.pack("<I", 3) + b"\xc1\xc1\xc1"], ids=["gone", "nonsense"]
)
async def test_a_worker_ends_when_its_parent_is_gone_or_talks_nonsense(
    tiny_files: Tiny, last: bytes
) -> None:
    """The first is a parent that is killed with an answer unread: that is no end of the stream, but
    a connection reset."""
    ours, theirs = socket.socketpair()
    with ours:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "engine.process.worker", stdin=theirs.fileno()
        )
        theirs.close()
        ours.setblocking(False)
        loop, frames = asyncio.get_running_loop(), FrameBuffer()
        decoder = msgspec.msgpack.Decoder(FromWorker)
        await loop.sock_sendall(ours, frame(Configure(config=_config(tiny_files))))
        async with asyncio.timeout(DEADLINE_S):
            heard: list[object] = []
            while not any(isinstance(message, Ready) for message in heard):
                data = await loop.sock_recv(ours, 1 << 16)
                heard += [decoder.decode(body) for body in frames.feed(data)]
            await loop.sock_sendall(ours, last)
            if last == frame(Inspect()):
                readable = asyncio.Event()
                loop.add_reader(ours, readable.set)
                await readable.wait()
                loop.remove_reader(ours)
                ours.close()
            assert await worker.wait() == 0


async def test_the_client_imports_nothing_heavy() -> None:
    script = (
        "import sys, engine.process.client; "
        "print(sorted({'torch', 'numpy', 'tokenizers', 'gguf', 'jinja2'} & set(sys.modules)))"
    )
    seen = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert seen.stdout.strip() == b"[]"
