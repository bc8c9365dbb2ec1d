"""A remote embedder: a real multilingual server, and servers that go away or become others."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from index.embedders import remote_embedder
from index.embedders.embedding_server import Reply
from index.embedders.embedding_wire import Model
from index.embedders.remote_embedder import RemoteEmbedder
from index.embedders.scripts import LATIN
from index.errors import EmbedderFault


class ScriptedServer:
    """Vectors are a function of the text and of `weights`."""

    name = "the scripted server"

    def __init__(self) -> None:
        self.weights = "a"
        self.named = "m"
        self.status = 200
        self.noise = 0.0
        self.mixes = False
        self.asked: list[list[str]] = []

    async def ask(self, body: bytes) -> Reply:
        await asyncio.sleep(0)
        texts = msgspec.json.decode(body)["input"]
        self.asked.append(texts)
        if self.status == 0:
            raise EmbedderFault("no connection")
        if any("toolong" in text for text in texts):
            return Reply(400, b"{}")
        vectors = [self.vector(text, len(texts)) for text in texts]
        data = [{"index": at, "embedding": one} for at, one in reversed(list(enumerate(vectors)))]
        return Reply(self.status, msgspec.json.encode({"data": data, "model": self.named}))

    def vector(self, text: str, num_texts: int) -> list[float]:
        beside = num_texts if self.mixes else 1
        seed = hashlib.sha256(f"{self.weights}{text}{beside}".encode()).digest()[:4]
        rng = np.random.default_rng(int.from_bytes(seed, "little"))
        return (rng.normal(size=8) + self.noise).tolist()

    async def close(self) -> None:
        pass


@pytest.fixture
def server() -> ScriptedServer:
    return ScriptedServer()


async def opened(server: ScriptedServer, folder: Path, **more) -> RemoteEmbedder:
    settings = {"cache": folder, "scripts": LATIN, "max_bytes": 120} | more
    return await RemoteEmbedder.open(server, Model(name="m", prefix="query: "), **settings)


@pytest.fixture
async def embedder(server: ScriptedServer, tmp_path: Path) -> AsyncIterator[RemoteEmbedder]:
    made = await opened(server, tmp_path)
    yield made
    await made.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_embedder, "_FIRST_PAUSE_S", 0.001)


async def test_vectors_have_unit_length_and_the_order_of_the_texts(
    embedder: RemoteEmbedder, server: ScriptedServer
) -> None:
    vectors = await embedder.embed(["one", "two"])
    expected = np.array([server.vector("query: one", 1), server.vector("query: two", 1)])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert vectors == pytest.approx(expected, abs=1e-6)


async def test_a_server_that_tells_no_two_texts_apart_is_a_fault(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "vector", lambda text, num_texts: [1.0, 0.0])
    with pytest.raises(EmbedderFault, match="same embedding for every text"):
        await opened(server, tmp_path)


async def test_texts_that_wait_travel_together(
    embedder: RemoteEmbedder, server: ScriptedServer
) -> None:
    server.asked.clear()
    await asyncio.gather(*(embedder.embed([f"t{number}"]) for number in range(40)))
    assert len(server.asked) <= 8


async def test_a_server_whose_vectors_depend_on_their_neighbours_gets_texts_alone(
    server: ScriptedServer, tmp_path: Path
) -> None:
    server.mixes = True
    embedder = await opened(server, tmp_path)
    server.asked.clear()
    together = await asyncio.gather(*(embedder.embed(["one", "two"]) for _ in range(3)))
    assert {len(texts) for texts in server.asked} == {1}
    assert np.array_equal(together[0], together[2])
    await embedder.close()


async def test_a_refused_text_is_a_fault_of_its_asker_alone(
    embedder: RemoteEmbedder, server: ScriptedServer
) -> None:
    asks = (embedder.embed([text]) for text in ("a", "b", "toolong", "c", "d", "e", "f"))
    results = await asyncio.gather(*asks, return_exceptions=True)
    assert [isinstance(one, EmbedderFault) for one in results] == [False] * 2 + [True] + [False] * 4
    assert len(await embedder.embed(["g"])) == 1


@pytest.mark.usefixtures("quick")
async def test_a_server_that_is_away_is_not_asked_by_requests_and_comes_back(
    embedder: RemoteEmbedder, server: ScriptedServer
) -> None:
    server.status = 0
    with pytest.raises(EmbedderFault, match="no connection"):
        await embedder.embed(["one"])
    server.asked.clear()
    for _ in range(100):
        with pytest.raises(EmbedderFault):
            await embedder.embed(["one"])
    assert not any("query: one" in texts for texts in server.asked)
    server.status = 200
    async with asyncio.timeout(30):
        while True:
            try:
                assert len(await embedder.embed(["one"])) == 1
                break
            except EmbedderFault:
                await asyncio.sleep(0.001)
    assert not embedder.outdated.is_set()


@pytest.mark.usefixtures("quick")
async def test_a_server_that_comes_back_with_another_model_makes_the_embedder_outdated(
    embedder: RemoteEmbedder, server: ScriptedServer, tmp_path: Path
) -> None:
    server.status = 503
    with pytest.raises(EmbedderFault, match="503"):
        await embedder.embed(["one"])
    server.status, server.weights = 200, "b"
    async with asyncio.timeout(30):
        await embedder.outdated.wait()
    with pytest.raises(EmbedderFault, match="another model"):
        await embedder.embed(["one"])
    successor = await opened(server, tmp_path)
    assert successor.identity != embedder.identity
    await successor.close()


@pytest.mark.parametrize("name", ["m", "m2"])
async def test_a_model_that_is_exchanged_in_silence_is_noticed_before_its_vectors_are_used(
    embedder: RemoteEmbedder, server: ScriptedServer, name: str
) -> None:
    await embedder.embed(["one"])
    server.weights, server.named = "b", name
    with pytest.raises(EmbedderFault, match="another model"):
        await embedder.embed(["one"])
    assert embedder.outdated.is_set()


async def test_a_server_that_begins_to_tell_no_two_texts_apart_is_noticed_at_once(
    embedder: RemoteEmbedder, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "vector", lambda text, num_texts: [1.0] * 8)
    with pytest.raises(EmbedderFault, match="another model"):
        await embedder.embed(["one", "two"])


async def test_a_server_that_gets_texts_alone_is_checked_when_the_last_check_is_old(
    server: ScriptedServer, tmp_path: Path
) -> None:
    server.mixes, now = True, [0.0]
    embedder = await opened(server, tmp_path)
    embedder._clock = lambda: now[0]
    embedder._checked_at = 0.0
    server.weights = "b"
    now[0] = 3.0
    with pytest.raises(EmbedderFault, match="another model"):
        await embedder.embed(["one"])
    await embedder.close()


async def test_the_end_does_not_wait_for_a_server_that_hangs(
    server: ScriptedServer, tmp_path: Path
) -> None:
    embedder = await opened(server, tmp_path)
    asked, never = asyncio.Event(), asyncio.Event()

    async def hang(_body: bytes) -> Reply:
        asked.set()
        await never.wait()
        raise AssertionError

    server.ask = hang  # type: ignore[method-assign]  # scripted anew
    waiting = [asyncio.ensure_future(embedder.embed([text])) for text in ("one", "two")]
    await asked.wait()
    waiting.append(asyncio.ensure_future(embedder.embed(["three"])))
    await asyncio.sleep(0)
    await embedder.close()
    await asyncio.wait(waiting)
    assert all(one.cancelled() for one in waiting)


async def test_a_server_that_fails_at_the_end_is_not_asked_again(
    server: ScriptedServer, tmp_path: Path, quick: None
) -> None:
    embedder = await opened(server, tmp_path)
    server.status = 0
    asked = asyncio.ensure_future(embedder.embed(["one"]))
    await asyncio.sleep(0)
    await embedder.close()
    await asyncio.wait([asked])
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not [one for one in others if "_return" in repr(one)]


async def test_another_name_for_the_same_model_changes_nothing(
    embedder: RemoteEmbedder, server: ScriptedServer
) -> None:
    server.named = "alias"
    assert len(await embedder.embed(["one"])) == 1
    assert not embedder.outdated.is_set()


async def test_rounding_errors_of_a_server_do_not_change_the_identity_after_a_restart(
    server: ScriptedServer, tmp_path: Path
) -> None:
    first = await opened(server, tmp_path)
    server.noise = 1e-3
    second = await opened(server, tmp_path)
    elsewhere = await opened(server, tmp_path / "elsewhere")
    assert first.identity == second.identity != elsewhere.identity
    for one in (first, second, elsewhere):
        await one.close()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"data": []}',
        b'{"data": [{"index": 1, "embedding": [1.0]}]}',
        b'{"data": [{"index": 0, "embedding": [0.0]}]}',
        b'{"data": [{"index": 0, "embedding": "no base64!"}]}',
        b'{"data": [{"index": 0, "embedding": "AAAA"}]}',
    ],
)
async def test_what_is_no_embedding_is_a_fault(
    embedder: RemoteEmbedder,
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    body: bytes,
) -> None:
    async def ask(_: bytes) -> Reply:
        return Reply(200, body)

    monkeypatch.setattr(server, "ask", ask)
    with pytest.raises(EmbedderFault):
        await embedder.embed(["one"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (" ", "empty"),
        ("чай", "script"),
        ("x " * 61, "too_long"),
        ("x" * 101, "unreadable"),
        ("où?", None),
    ],
)
async def test_what_the_model_cannot_read_is_not_sent(
    embedder: RemoteEmbedder, text: str, reason: str | None
) -> None:
    assert embedder.refuses(text) == reason
