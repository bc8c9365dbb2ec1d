"""Turns prompts into unit vectors, off the event loop."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from index.embedders.batching import Batching
from index.embedders.cachefolder import default_cache
from index.embedders.modelfiles import ModelFiles, read_model_files
from index.embedders.runtimes import Runtime, Vectors, load_runtime, load_tokenizer
from index.embedders.window import Window


class Embedder(Protocol):
    """`identity` names the space of the vectors: vectors of two identities are never compared."""

    identity: str
    dimension: int

    @property
    def away(self) -> str:
        """Why every text is an `EmbedderFault` for now; empty when it is not so."""
        ...

    def refuses(self, text: str) -> str | None:
        """Why `text` has no embedding: `empty` | `script` | `too_long` | `unreadable` (it has signs
        or words that the model takes for others); None when it has one."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, float32 [num_texts, dimension], of texts that are not refused.

        Raises `EmbedderFault` when the model fails or the embedder is closed.
        """
        ...

    async def close(self) -> None:
        """Let go of threads and memory. Idempotent."""
        ...


class ModelEmbedder:
    """An `Embedder` over a runtime: one thread works, and takes all that waits in one trip."""

    away = ""

    def __init__(self, runtime: Runtime, *, window: Window, identity: str) -> None:
        self.identity = identity
        self.dimension = runtime.dimension
        self._runtime = runtime
        self._window = window
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedder")
        self._batching = Batching(self._encode)

    def refuses(self, text: str) -> str | None:
        return self._window.refuses(text)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return await self._batching.embed(texts)

    async def close(self) -> None:
        await self._batching.close()
        self._thread.shutdown(wait=False)

    async def _encode(self, texts: list[str]) -> Vectors:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._runtime.encode, texts)


def load_embedder(
    model: str,
    *,
    threads: int = 1,
    cache: Path | None = None,
    prefix: str | None = None,
    scripts: frozenset[str] | Literal["any"] | None = None,
) -> ModelEmbedder:
    """Load a sentence-transformers model from a path, `package:NAME` or `hf:ORG/NAME`.

    Blocks, the first time for some ten seconds (the export): call it off the event loop.
    `cache` holds exports, by default `default_cache()`. `prefix` and `scripts` stand for what the
    model's own files say where they are given. Raises `EmbedderFault` when there is no such model,
    or no whole one.
    """
    files = read_model_files(model)
    if prefix is not None:
        files = msgspec.structs.replace(files, prefix=prefix)
    if scripts is not None:
        files = msgspec.structs.replace(files, scripts=None if scripts == "any" else scripts)
    tokenizer = load_tokenizer(files)
    runtime = load_runtime(files, tokenizer, threads=threads, cache=cache or default_cache())
    return ModelEmbedder(
        runtime,
        window=Window(files, tokenizer),
        identity=_identity(files, runtime),
    )


def _identity(files: ModelFiles, runtime: Runtime) -> str:
    # The pooling is in the digest; it stands here to be read. What follows the last but one slash
    # is of the runtime: `index.volatility.model` counts on it.
    parts = (files.digest[:16], files.pooling, files.prefix, runtime.name, str(runtime.dimension))
    return "/".join(parts)
