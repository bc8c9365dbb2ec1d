"""The part of an engine's config that says what stays of long contexts."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class LongContext(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a sequence's keys and values stays in the KV cache. Clients may ask for another of
    these in a request's field `long_context`. Where something goes, a sequence's pages are neither
    kept for others nor begun with theirs; it ends at the model's last position."""

    mode: Literal["full", "window", "drop"] = "full"
    """`full`: everything. `window`: the first `sinks` and the last `window` tokens, in whole pages,
    and up to an eighth of the window more; memory is bounded, what lies between is forgotten.
    `drop`: of a prompt longer than `keep` tokens, once it is computed, each KV head keeps so many:
    the first `sinks`, the last 32, and those that these attend to most."""
    sinks: Annotated[int, Meta(ge=0, le=1024)] = 4
    """Tokens at the beginning, which models attend to whatever they say."""
    window: Annotated[int, Meta(ge=1)] = 2048
    """Tokens before the newest. No less than the windows of the model's own layers."""
    keep: Annotated[int, Meta(ge=1)] = 1024
    """Tokens of a prompt. No less than `sinks`, the last 32, and the model's own windows."""
