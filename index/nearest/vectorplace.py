"""Where the vectors of entries are: in each process, or with the entries in the store."""

from typing import TYPE_CHECKING, Protocol

import msgspec

from index.entry import Entry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the scope whose prompt is near; whether it may be served is for `judge`."""

    key: str
    prompt: str
    similarity: float
    """Cosine, within some .002: `Semantic.confirm` has it from the entry itself."""


class SemanticStats(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes now, of what is held in this process."""

    entries: int
    scopes: int


class VectorPlace(Protocol):
    """Entries by scope and embedding, of one embedder. What was removed may still be found for a
    while: who asks looks the entry up before it serves it."""

    follows: bool
    """Whether it has to be told of every change of the store, from the first on."""

    def add(self, entry: Entry) -> None:
        """Hold an entry, in place of one with its key. Returns at once."""
        ...

    def remove(self, key: str) -> None:
        """Let go of an entry; a no-op when it is not held. Returns at once."""
        ...

    def is_behind(self, scope: str) -> bool:
        """Whether who adds many to a scope should wait: until then it is slow to search."""
        ...

    def clear(self) -> None:
        """Let go of everything, of this process."""
        ...

    async def search(self, scope: str, vector: "Vector", *, limit: int) -> tuple[Candidate, ...]:
        """The nearest of the scope, best first. Raises StoreFault."""
        ...

    def stats(self) -> SemanticStats:
        """Sizes now."""
        ...

    async def close(self) -> None:
        """Idempotent."""
        ...
