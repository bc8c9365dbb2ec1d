"""The part of the config that describes the bundled engine."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from proxy.settings.default import default
from proxy.settings.longcontext import LongContext
from proxy.settings.units import Bytes


class DiskPages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pages of prompts on disk, found again after a restart. They hold what clients wrote, as keys
    and values: the file is as confidential as the prompts."""

    path: str
    """The file; relative ones count from the current folder. One engine at a time uses it."""
    max: Bytes = default(Bytes(2**30))
    """The file grows to this size at most; then the pages that were used least lately go."""


class KVCache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pages of the engine's KV cache."""

    dtype: Literal["int8", "int8-hq", "bf16", "fp32"] = "int8"
    """How keys and values are kept. `int8-hq` has a scale for each 32 channels of a head instead of
    one, which `int8` has for heads of more than 128 channels only: a little more memory and time,
    a fifth less error; on CPUs."""
    page_tokens: Literal[16, 32, 64] = 32
    """Tokens in a page."""
    memory: Bytes = default(Bytes(256 * 2**20))
    """What all pages together take."""
    prefix: bool = True
    """Keep the pages of finished requests, so that a prompt that begins as an earlier one did is
    computed only from where they part. Shared among those who share answers (`share`)."""
    pin: tuple[str, ...] = ()
    """System prompts (or beginnings of completions' prompts) whose pages stay until they are
    purged, in half of the memory at most. Each is the whole text, or its beginning."""
    swap: Bytes = default(Bytes(128 * 2**20))
    """Memory for the pages of sequences that have to make room for others, where copying them is
    cheaper than computing them again. 0: always compute again."""
    disk: DiskPages | None = None
    """Keep pages of prompts in a file, too. Needs `prefix` and a store with a `path` or `redis`,
    which alone remembers the purges made while the engine was away."""

    def __post_init__(self) -> None:
        if not self.prefix and (self.disk is not None or self.pin):
            raise ValueError("`disk` and `pin` need `prefix`")


class Engine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bundled engine, in a process of its own."""

    model: str
    """A path to a GGUF file or to a folder as transformers saves it (relative ones count from the
    current folder), `package:NAME` for an installed package that carries either, or `hf:ORG/NAME`
    for a model of the Hugging Face hub: from its local cache, else downloaded at the start."""
    model_id: str = ""
    """The id in `/v1/models` and in answers; by default made from the model's own name."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where it computes; `auto` takes a GPU if there is one."""
    weights: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """How weights are kept; `auto` takes what the device is fast with. `int8` needs a C++ compiler
    and a CPU with AVX2, as `auto` does to choose it; without them it counts as `auto`."""
    kv_cache: KVCache = default(KVCache())
    """Pages of the KV cache."""
    max_context: Annotated[int, Meta(ge=16)] = 8192
    """Tokens of prompt and answer together; the model's own limit also holds."""
    long_context: LongContext = default(LongContext())
    """What of long contexts stays in the KV cache."""
    max_batch: Annotated[int, Meta(ge=1, le=1024)] = 32
    """Sequences in one running batch."""
    threads: Annotated[int, Meta(ge=0)] = 0
    """CPU threads; 0 takes all cores."""
