"""The config's part on answers by meaning."""

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from proxy.settings.units import Duration

T = TypeVar("T")

Ratio = Annotated[float, Meta(ge=0, le=1)]


def _default(value: T) -> T:
    """A default that msgspec's schema cannot show by itself; `proxy.settings.schema` shows it."""
    return msgspec.field(default_factory=lambda: value)


class Semantic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers by meaning. `{}` takes all defaults."""

    profile: Literal["strict", "balanced", "intent"] = "strict"
    """How much two questions may differ and still share an answer."""
    threshold: Ratio | None = None
    """Least cosine similarity; by default the embedder's and profile's own."""
    candidates: Annotated[int, Meta(ge=1, le=64)] = 8
    """Nearest entries that are judged, one after the other."""
    deadline: Duration = _default(Duration(0.25))
    """A later embedding or search is a miss."""


class Embedder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What makes embeddings, for answers by meaning."""

    model: str
    """A path (relative ones count from the current folder), or `package:NAME` for an installed
    package that carries the model."""
    threads: Annotated[int, Meta(ge=1)] = 1
    """CPU threads."""
