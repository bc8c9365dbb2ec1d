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


class Refusal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What two questions must agree in: one that has it does not share an answer with one that has
    not, or has another."""

    words: tuple[str, ...] = ()
    """Words or phrases, letter case aside."""
    pattern: str | None = None
    """Regular expression (Python's, letter case aside); its matches are compared."""

    def __post_init__(self) -> None:
        if bool(self.words) == (self.pattern is not None):
            raise ValueError("give one of `words`, `pattern`")
        if not all(word.strip() for word in self.words):
            raise ValueError("a word in `words` is empty")


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
    guards: dict[str, Literal["on", "off"]] = {}
    """Switches single guards, by the name that they give as their reason, other than the profile
    does: `{tense: off}`."""
    refuse: tuple[Refusal, ...] = ()
    """Differences of your own that keep two questions apart, whatever the profile."""


class Embedder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What makes embeddings, for answers by meaning."""

    model: str
    """A path (relative ones count from the current folder), or `package:NAME` for an installed
    package that carries the model."""
    threads: Annotated[int, Meta(ge=1)] = 1
    """CPU threads."""
