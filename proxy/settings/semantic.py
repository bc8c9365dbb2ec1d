"""The config's part on answers by meaning."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from proxy.settings.default import default
from proxy.settings.units import Duration

Ratio = Annotated[float, Meta(ge=0, le=1)]


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


class ModelJudge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that compares two answers, asked as a client would ask for it."""

    model: str
    """Its name; a route must lead to it."""
    options: dict[str, str | float | bool | None] = default({"temperature": 0.0})
    """Further fields of the request."""


class Semantic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers by meaning. `{}` takes all defaults."""

    profile: Literal["strict", "balanced", "intent"] = "strict"
    """How much two questions may differ and still share an answer."""
    threshold: Ratio | None = None
    """Least cosine similarity; by default the embedder's and profile's own."""
    candidates: Annotated[int, Meta(ge=1, le=64)] = 8
    """Nearest entries that are judged, one after the other."""
    deadline: Duration = default(Duration(0.25))
    """A later embedding or search is a miss; it goes on, and counts when the answer is kept."""
    guards: dict[str, Literal["on", "off"]] = {}
    """Switches single guards, by the name that they give as their reason, other than the profile
    does: `{tense: off}`."""
    refuse: tuple[Refusal, ...] = ()
    """Differences of your own that keep two questions apart, whatever the profile."""
    audit: Ratio = 0.02
    """Share of the answers given by meaning that are compared with two fresh ones of the upstream,
    behind the reader's back. 0: none; then no bound is ever proven, and nothing closes."""
    max_error: Annotated[float, Meta(gt=0, lt=1)] = 0.01
    """Greatest share of the answers given by meaning that may be wrong."""
    confidence: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    """Probability with which what the audits prove is true."""
    start: Literal["open", "shadow"] = "open"
    """`open`: answer from the first day, and stop when more than `max_error` are wrong; `shadow`:
    begin to answer when it is proven that no more are."""
    judge: Literal["equal", "embedding"] | ModelJudge = "embedding"
    """Who compares two answers: `equal`: letter case, spaces and the last full stop aside;
    `embedding`: sentence by sentence, near in meaning and with nothing that the guards tell apart;
    or a model."""
    misses: Annotated[float, Meta(ge=0, lt=1)] = 0.32
    """Greatest share of wrong answers that the judge may take for right; widens the bound. Of the
    judge `embedding` on near but wrong answers: .22, at most .32 (`tests/benchmark/audit.py`)."""
