"""What is asked of contexts that are longer than their keys and values may take memory."""

from typing import Literal

import msgspec


class LongContext(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers are tokens; pages round them up.

    full     everything stays
    window   the first `sinks` and the last `window` tokens stay (Xiao et al., StreamingLLM, 2023)
    drop     of a prompt longer than `keep`, each KV head keeps so many: `sinks`, the last ones, and
             those that the last ones attend to most (Li et al., SnapKV, 2024); answers stay whole
    """

    mode: Literal["full", "window", "drop"] = "full"
    sinks: int = 4
    window: int = 2048
    keep: int = 1024
