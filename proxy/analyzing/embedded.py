"""The embedder of an analysis: each text of a log is embedded once, however often it is asked."""

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from index.embedders.memo import Memo
from index.semantic import NoSemantic, Semantic, SemanticIndex
from index.volatility.examples import Learned, NothingLearned
from proxy.settings.embedder import Embedder as Settings

if TYPE_CHECKING:
    from index.embedders.embedder import Embedder


class Embedded:
    """What the request path has once its embedder is loaded."""

    def __init__(self, embedder: "Embedder", learned: Learned, *, max_texts: int) -> None:
        """`learned`: of this embedder. `max_texts`: that are remembered, some 1.5 KB each."""
        self.learned = learned
        self._embedder = embedder
        self._memo = Memo(max_texts)

    @contextlib.asynccontextmanager
    async def index(self) -> AsyncIterator[Semantic]:
        """One with nothing in it, for one replay."""
        index = SemanticIndex(self._embedder, memo=self._memo)
        try:
            yield index
        finally:
            await index.vectors.close()

    async def close(self) -> None:
        """Let go of the embedder."""
        await self._embedder.close()


class NotEmbedded:
    """Nothing is looked for by meaning."""

    learned: Learned = NothingLearned()

    @contextlib.asynccontextmanager
    async def index(self) -> AsyncIterator[Semantic]:
        """See `Embedded.index`."""
        yield NoSemantic()

    async def close(self) -> None:
        """Nothing to let go of."""


async def open_embedded(settings: Settings | None, *, max_texts: int) -> Embedded | NotEmbedded:
    """`settings`: None where there is no embedder. Raises EmbedderFault."""
    if settings is None:
        return NotEmbedded()
    # Imported where they are needed: they bring what loads models.
    from index.volatility.learned import LearnedVolatility
    from proxy.lookup.embedding import open_embedder

    embedder = (await open_embedder(settings)).embedder
    return Embedded(embedder, LearnedVolatility(embedder), max_texts=max_texts)
