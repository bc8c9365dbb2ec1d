"""One worker process for two clients: answers, aborts and deaths reach whom they concern."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from enginekit import Tiny

from engine.config import EngineConfig
from engine.errors import EngineDied, ModelUnusable, RequestRefused
from engine.process.attached import Attached
from engine.process.client import EngineClient
from engine.process.generation import Generation
from engine.process.protocol import (
    Abort,
    Delta,
    Finished,
    Generate,
    Inspect,
    Occupancy,
    Outline,
    Request,
    Sharing,
)
from engine.process.relay import Relay
from engine.sampling import Sampling

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEADLINE_S = 120.0
LONG = Sampling(temperature=0, max_tokens=400, logit_bias={258: -100.0})


class Shared(NamedTuple):
    relay: Relay
    path: str
    one: EngineClient
    other: EngineClient


@pytest.fixture(scope="module")
def config(tiny_files: Tiny) -> EngineConfig:
    return EngineConfig(model=str(tiny_files.path), weights="fp32", threads=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(
    config: EngineConfig, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Relay, str]]:
    """A relay, and where it listens: for all tests, since its worker takes seconds to start."""
    path = tmp_path_factory.mktemp("relay") / "engine.sock"
    relay = Relay(config, path)
    waiting = EngineClient(config, shared=str(path))
    await waiting.start()  # before there is anybody to speak to
    await relay.start()
    await waiting.ready(timeout_s=DEADLINE_S)
    await waiting.close()
    yield relay, str(path)
    await relay.close()


@pytest_asyncio.fixture(loop_scope="module")
async def shared(served: tuple[Relay, str], config: EngineConfig) -> AsyncIterator[Shared]:
    relay, path = served
    clients = [EngineClient(config, shared=path) for _ in range(2)]
    for client in clients:
        await client.start()
        await client.ready(timeout_s=DEADLINE_S)
    yield Shared(relay, path, *clients)
    for client in clients:
        await client.close()
    async with asyncio.timeout(DEADLINE_S):
        await relay.unused()


async def text_of(generation: Generation) -> str:
    await generation.started()
    return "".join([event.text async for event in generation if isinstance(event, Delta)])


async def test_requests_of_both_run_together_under_their_own_ids(shared: Shared) -> None:
    requests = [Request(prompt=text * 4, sampling=LONG) for text in ("red", "blue", "grey")]
    alone = [await text_of(shared.one.generate(request)) for request in requests]
    together = await asyncio.gather(
        *(text_of(shared.one.generate(request)) for request in requests),
        *(text_of(shared.other.generate(request)) for request in reversed(requests)),
    )
    assert list(together) == [*alone, *reversed(alone)]


async def test_a_refusal_reaches_who_asked(shared: Shared) -> None:
    running = shared.one.generate(Request(prompt="abc", sampling=LONG))
    refused = shared.other.generate(Request(prompt="x" * 600))
    with pytest.raises(RequestRefused) as caught:
        await refused.started()
    assert caught.value.code == "context_length_exceeded"
    assert await text_of(running)


async def test_a_client_that_hangs_up_aborts_its_own_requests_only(shared: Shared) -> None:
    mine = shared.one.generate(Request(prompt="abc", sampling=LONG))
    await mine.started()
    theirs = shared.other.generate(Request(prompt="abc", sampling=LONG, num_choices=4))
    await theirs.started()
    await shared.other.close()
    while (now := await shared.one.inspect()).running > 1:
        pass
    assert await text_rest(mine)
    while (now := await shared.one.inspect()).running:
        pass
    assert now.free_pages == now.num_pages


async def text_rest(generation: Generation) -> str:
    return "".join([event.text async for event in generation if isinstance(event, Delta)])


async def test_a_closed_answer_is_aborted_behind_the_relay(shared: Shared) -> None:
    generation = shared.one.generate(Request(prompt="abc", sampling=LONG))
    await generation.started()
    await generation.aclose()
    while (now := await shared.one.inspect()).running:
        pass
    assert now.free_pages == now.num_pages


async def test_a_request_that_is_aborted_in_the_same_breath_leaves_nothing(
    shared: Shared,
) -> None:
    client = await Attached.connect(shared.path)
    begun = Generate(request_id=7, request=Request(prompt="abc", sampling=LONG))
    client.write(begun, Abort(request_id=7), Inspect())
    while not any(isinstance(message, Occupancy) for message in await client.read()):
        pass
    client.write(Inspect())
    (now,) = await client.read()
    assert isinstance(now, Occupancy)
    assert (now.running, now.waiting, now.free_pages) == (0, 0, now.num_pages)
    assert shared.relay._engine._generations == {}
    await client.end()


async def test_requests_that_are_sent_as_one_are_answered_refused_and_aborted_as_one(
    shared: Shared,
) -> None:
    short = Sampling(temperature=0, max_tokens=3, logit_bias={258: -100.0})
    two = Request(prompt="abc", sampling=short, num_choices=2)
    async with shared.one.generate(two, Request(prompt="defg", sampling=short)) as generation:
        assert await generation.started() == 3 + 4
        ends = [event.index async for event in generation if isinstance(event, Finished)]
    assert sorted(ends) == [0, 1, 2]
    endless = Request(prompt="abc", sampling=LONG)
    closed = shared.one.generate(endless, endless)
    await closed.started()
    await closed.aclose()
    with pytest.raises(RequestRefused):
        await shared.one.generate(endless, Request(prompt="x" * 600)).started()
    while (now := await shared.one.inspect()).running + now.waiting:
        pass
    assert now.free_pages == now.num_pages


async def test_a_death_of_the_worker_is_one_for_both_and_both_come_back(shared: Shared) -> None:
    restarts = (await shared.one.inspect()).restarts
    before = await text_of(shared.one.generate(Request(prompt="abc", sampling=LONG)))
    generation = shared.one.generate(Request(prompt="abc", sampling=LONG))
    await generation.started()
    assert shared.relay.worker_pid is not None
    os.kill(shared.relay.worker_pid, signal.SIGKILL)
    with pytest.raises(EngineDied):
        await text_rest(generation)
    await shared.other.down()
    for client in (shared.one, shared.other):
        await client.ready(timeout_s=DEADLINE_S)
        assert await text_of(client.generate(Request(prompt="abc", sampling=LONG))) == before
        assert (await client.inspect()).restarts == restarts + 1


async def test_the_prefix_tree_is_told_to_each_client(shared: Shared) -> None:
    beginning = "a beginning that fills a page of its own, and a little of the next one "
    for end in ("one", "other"):
        sharing = Sharing(isolation="tenant:t", tags=(f"doc:{end}",))
        request = Request(
            prompt=beginning + end * 9, sharing=sharing, sampling=Sampling(max_tokens=1)
        )
        await text_of(shared.one.generate(request))
    for client in (shared.one, shared.other):
        tree = await client.outline(Outline(max_nodes=10))
        common, *ends = tree.nodes
        assert (common.parent, common.tags) == (None, ("doc:one", "doc:other"))
        assert {(end.parent, end.tags) for end in ends} == {(0, ("doc:one",)), (0, ("doc:other",))}
        assert {node.isolation for node in tree.nodes} == {"tenant:t"}
        assert common.tokens_below == tree.num_tokens == sum(node.tokens for node in tree.nodes)
        assert len((await client.outline(Outline(max_nodes=1))).nodes) == 1


async def test_a_model_that_cannot_be_used_is_said_to_the_clients(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF" + bytes(64))
    config = EngineConfig(model=str(path))
    relay = Relay(config, tmp_path / "engine.sock")
    client = EngineClient(config, shared=str(tmp_path / "engine.sock"))
    await relay.start()
    await client.start()
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ModelUnusable):
            await relay.ready()
        with pytest.raises(ModelUnusable):
            await client.ready(timeout_s=DEADLINE_S)
    await client.close()
    await relay.close()
