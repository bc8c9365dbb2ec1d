"""The border to what judges prompts by their embedding, and the null object for it.

Light to import: numpy comes with `index.volatility.learned`, not with this module.
"""

from typing import Protocol

import msgspec

LEAST_LIKENESS = 0.75
"""Cosine from which a prompt is like an example."""

LEARNED = "volatile:learned"
EXAMPLE = "volatile:example"


class Examples(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy says of its own prompts."""

    volatile: tuple[str, ...] = ()
    stable: tuple[str, ...] = ()
    classifier: bool = True
    """Whether the trained classifier is asked as well, where no example is near."""


class Learned(Protocol):
    """Judges prompts by their embedding."""

    async def judge(self, embedding: bytes, examples: Examples) -> str | None:
        """Why the answer to a prompt is not to be kept: `volatile:example`, `volatile:learned`, or
        None. `embedding` is float32, little endian, unit length. Raises `EmbedderFault`."""
        ...


class NothingLearned:
    """Without an embedder."""

    async def judge(self, embedding: bytes, examples: Examples) -> str | None:
        return None
