"""The façade: entries by scope and meaning, over an embedder that a test can read."""

from collections.abc import Sequence

import numpy as np
import pytest

from index.entry import Entry, Snapshot
from index.errors import EmbedderFault
from index.semantic import NoSemantic, SemanticIndex


class LetterEmbedder:
    """Counts letters: texts of the same letters are the same."""

    identity = "letters/26"
    dimension = 26

    def __init__(self) -> None:
        self.broken = False
        self.closed = False
        self.embedded: list[str] = []

    def refuses(self, text: str) -> str | None:
        return None if text.isascii() else "script"

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.broken:
            raise EmbedderFault("out of order")
        self.embedded += texts
        rows = np.zeros((len(texts), 26), dtype=np.float32)
        for row, text in enumerate(texts):
            for letter in filter(str.isalpha, text.lower()):
                rows[row, ord(letter) - ord("a")] += 1
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    async def close(self) -> None:
        self.closed = True


def entry(key: str, prompt: str, embedding: bytes, *, scope: str = "s", embedder: str) -> Entry:
    return Entry(
        key=key,
        scope=scope,
        tenant="t",
        policy="p",
        upstream="u",
        model="m",
        surface="chat",
        prompt=prompt,
        canonical=b"{}",
        payload=b"",
        tags=(),
        snapshot=Snapshot(generation="g", sequence=0),
        created_at=0.0,
        expires_at=1.0,
        keep_until=1.0,
        embedder=embedder,
        embedding=embedding,
    )


@pytest.fixture
def embedder() -> LetterEmbedder:
    return LetterEmbedder()


@pytest.fixture
def semantic(embedder: LetterEmbedder):
    made = SemanticIndex(embedder)
    yield made
    made.vectors.check_integrity()


async def learn(semantic: SemanticIndex, key: str, prompt: str, *, scope: str = "s") -> Entry:
    sought = await semantic.search(scope, prompt, limit=1)
    assert sought.embedding is not None
    made = entry(key, prompt, sought.embedding, scope=scope, embedder=semantic.identity)
    semantic.add(made)
    return made


async def test_the_nearest_of_the_scope_come_best_first(semantic: SemanticIndex) -> None:
    await learn(semantic, "k1", "cat")
    await learn(semantic, "k2", "cats")
    await learn(semantic, "k3", "act", scope="other")
    sought = await semantic.search("s", "taC", limit=5)
    assert [(found.key, found.prompt) for found in sought.candidates] == [
        ("k1", "cat"),
        ("k2", "cats"),
    ]
    assert sought.candidates[0].similarity == pytest.approx(1.0, abs=0.01)
    assert sought.reason is None
    assert len((await semantic.search("s", "cat", limit=1)).candidates) == 1


async def test_a_prompt_without_candidates_still_gets_its_embedding(
    semantic: SemanticIndex,
) -> None:
    sought = await semantic.search("s", "cat", limit=5)
    assert sought.candidates == ()
    assert sought.embedding is not None
    assert len(sought.embedding) == 4 * 26


async def test_a_question_that_is_asked_again_is_not_embedded_again(
    semantic: SemanticIndex, embedder: LetterEmbedder
) -> None:
    first = await semantic.search("s", "cat", limit=1)
    embedder.broken = True
    again = await semantic.search("other", "cat", limit=1)
    assert again.embedding == first.embedding
    assert embedder.embedded == ["cat"]
    embedder.broken = False
    semantic.forget()
    await semantic.search("s", "cat", limit=1)
    assert embedder.embedded == ["cat", "cat"], "nothing is remembered of what is to be forgotten"


async def test_an_entry_is_confirmed_by_the_embedding_it_was_stored_with(
    semantic: SemanticIndex,
) -> None:
    made = await learn(semantic, "k1", "cats")
    asked = (await semantic.search("s", "cat", limit=1)).embedding
    assert asked is not None
    assert semantic.confirm(asked, made) == pytest.approx(np.sqrt(3 / 4))
    assert semantic.confirm(asked, entry("k1", "cats", made.embedding, embedder="old")) is None
    assert semantic.confirm(asked, entry("k1", "cats", b"", embedder=semantic.identity)) is None


async def test_a_removed_entry_is_not_found(semantic: SemanticIndex) -> None:
    await learn(semantic, "k1", "cat")
    semantic.remove("k1")
    semantic.remove("k1")
    assert (await semantic.search("s", "cat", limit=5)).candidates == ()
    assert semantic.stats().scopes == 0


async def test_an_entry_of_the_same_key_takes_the_place_of_the_old_one(
    semantic: SemanticIndex,
) -> None:
    made = await learn(semantic, "k1", "cat")
    semantic.add(made)
    await learn(semantic, "k1", "dog")
    assert semantic.stats().entries == 1
    sought = await semantic.search("s", "cat", limit=5)
    assert [found.prompt for found in sought.candidates] == ["dog"]


async def test_an_embedding_of_another_embedder_is_never_compared(
    semantic: SemanticIndex,
) -> None:
    made = await learn(semantic, "k1", "cat")
    semantic.clear()
    semantic.add(entry("k1", "cat", made.embedding, embedder="letters/older"))
    semantic.add(entry("k2", "cat", made.embedding[:-4], embedder=semantic.identity))
    semantic.add(entry("k3", "cat", made.embedding, embedder=semantic.identity, scope=""))
    assert semantic.stats().entries == 0


async def test_an_entry_whose_new_form_has_no_embedding_is_let_go(semantic: SemanticIndex) -> None:
    await learn(semantic, "k1", "cat")
    semantic.add(entry("k1", "dog", b"", embedder=""))
    assert semantic.stats().entries == 0


async def test_a_refused_text_is_not_sought_and_says_why(semantic: SemanticIndex) -> None:
    sought = await semantic.search("s", "чай", limit=5)
    assert (sought.embedding, sought.candidates, sought.reason) == (None, (), "script")


async def test_a_failing_embedder_is_a_reason_and_no_error(
    semantic: SemanticIndex, embedder: LetterEmbedder
) -> None:
    embedder.broken = True
    assert (await semantic.search("s", "cat", limit=5)).reason == "fault"


async def test_closing_closes_the_embedder(
    semantic: SemanticIndex, embedder: LetterEmbedder
) -> None:
    await semantic.close()
    assert embedder.closed


async def test_no_semantic_tier_seeks_and_holds_nothing() -> None:
    none = NoSemantic()
    none.add(entry("k1", "cat", b"", embedder=""))
    none.remove("k1")
    none.clear()
    sought = await none.search("s", "cat", limit=5)
    assert (sought.embedding, sought.candidates, sought.reason) == (None, (), "off")
    assert none.stats().entries == 0
    await none.close()
