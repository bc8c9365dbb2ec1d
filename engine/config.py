"""What a worker process is started with."""

from typing import Literal

import msgspec

from engine.longcontext import LongContext

KVDtype = Literal["int8", "int8-hq", "bf16", "fp32"]
WeightsDtype = Literal["auto", "fp32", "bf16", "int8"]
ChosenDtype = Literal["fp32", "bf16", "int8"]
Device = Literal["auto", "cpu", "cuda"]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sent to the worker as its first frame."""

    model: str
    """What `engine.sources.weights.locate` takes."""
    device: Device = "auto"
    weights: WeightsDtype = "auto"
    """Type of the linear layers. `int8` needs the C++ kernels; `auto` takes it where they are, and
    otherwise measures which of the other two is faster here, as `int8` without kernels does."""
    kv_dtype: KVDtype = "int8"
    page_tokens: int = 32
    kv_memory_bytes: int = 256 * 2**20
    kv_prefix: bool = True
    """Keep the pages of finished requests for those that begin alike."""
    kv_pin: tuple[str, ...] = ()
    """System prompts, or beginnings of prompts, whose pages stay."""
    kv_swap_bytes: int = 128 * 2**20
    """Memory for the pages of preempted sequences; 0: they are computed anew."""
    kv_disk: str | None = None
    """The file for pages that are to be found again after a restart. Needs `kv_prefix`."""
    kv_disk_bytes: int = 2**30
    max_context: int = 8192
    """Tokens of prompt and answer together; the model's own limit and the memory cap it."""
    long_context: LongContext = LongContext()
    """Of requests that do not say."""
    max_batch: int = 32
    """Sequences in one running batch."""
    step_tokens: int = 256
    """Tokens computed in one step: decodes first, the rest is prefill."""
    threads: int = 0
    """CPU threads; 0 takes all cores."""
