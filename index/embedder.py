"""Turns prompts into unit vectors, off the event loop."""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import msgspec
from tokenizers import Tokenizer

from index.errors import EmbedderFault
from index.modelfiles import ModelFiles, read_model_files
from index.runtimes import Runtime, Vectors, load_runtime, load_tokenizer
from index.scripts import scripts_of

_MAX_BATCH_TEXTS = 32
_MAX_BYTES_PER_TOKEN = 12
"""Text beyond this for every token of the window is too long without being tokenised."""


class Embedder(Protocol):
    """`identity` names the space of the vectors: vectors of two identities are never compared."""

    identity: str
    dimension: int

    def refuses(self, text: str) -> str | None:
        """Why `text` has no embedding: `empty` | `script` | `too_long`; None when it has one."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, float32 [num_texts, dimension], of texts that are not refused.

        Raises `EmbedderFault` when the model fails or the embedder is closed.
        """
        ...

    async def close(self) -> None:
        """Let go of threads and memory. Idempotent."""
        ...


class Window:
    """What a model can read: scripts that it was trained on, texts that fit whole."""

    def __init__(self, files: ModelFiles, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._scripts = files.scripts
        self._prefix = files.prefix
        self._max_tokens = files.max_tokens

    def refuses(self, text: str) -> str | None:
        """`empty` | `script` | `too_long` | None."""
        if not text or text.isspace():
            return "empty"
        if self._scripts is not None and not scripts_of(text) <= self._scripts:
            return "script"
        return None if self._fits(self._prefix + text) else "too_long"

    def _fits(self, text: str) -> bool:
        # Each token stands for a byte at least, and there are two special ones.
        if text.isascii() and len(text) + 2 <= self._max_tokens:
            return True
        if len(text) > self._max_tokens * _MAX_BYTES_PER_TOKEN:
            return False
        return len(self._tokenizer.encode(text).ids) <= self._max_tokens


class _Job(msgspec.Struct, frozen=True, eq=False):
    texts: tuple[str, ...]
    vectors: "asyncio.Future[Vectors]"


class ModelEmbedder:
    """An `Embedder` over a runtime: one thread works, and takes all that waits in one trip."""

    def __init__(self, runtime: Runtime, *, window: Window, identity: str) -> None:
        self.identity = identity
        self.dimension = runtime.dimension
        self._runtime = runtime
        self._window = window
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedder")
        self._jobs: list[_Job] = []
        self._working: asyncio.Task[None] | None = None
        self._closed = False

    def refuses(self, text: str) -> str | None:
        return self._window.refuses(text)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if self._closed:
            raise EmbedderFault("the embedder is closed")
        loop = asyncio.get_running_loop()
        job = _Job(tuple(texts), loop.create_future())
        self._jobs.append(job)
        if self._working is None:
            self._working = loop.create_task(self._work())
        return await job.vectors

    async def close(self) -> None:
        self._closed = True
        for job in self._jobs:
            job.vectors.cancel()
        if self._working is not None:
            await self._working
        self._thread.shutdown(wait=False)

    async def _work(self) -> None:
        try:
            while batch := self._take():
                await self._answer(batch)
        finally:
            self._working = None

    def _take(self) -> list[_Job]:
        """The next jobs that somebody still waits for, up to a batch."""
        batch: list[_Job] = []
        num_texts = 0
        while self._jobs and num_texts < _MAX_BATCH_TEXTS:
            job = self._jobs.pop(0)
            if not job.vectors.done():
                batch.append(job)
                num_texts += len(job.texts)
        return batch

    async def _answer(self, batch: list[_Job]) -> None:
        texts = [text for job in batch for text in job.texts]
        loop = asyncio.get_running_loop()
        try:
            vectors = await loop.run_in_executor(self._thread, self._runtime.encode, texts)
        except Exception as error:  # noqa: BLE001  (a model may raise anything; all who wait hear)
            for job in batch:
                if not job.vectors.done():
                    fault = EmbedderFault(f"the embedding model failed: {error}")
                    fault.__cause__ = error
                    job.vectors.set_exception(fault)
            return
        first = 0
        for job in batch:
            if not job.vectors.done():
                job.vectors.set_result(vectors[first : first + len(job.texts)])
            first += len(job.texts)


def load_embedder(model: str, *, threads: int = 1, cache: Path | None = None) -> ModelEmbedder:
    """Load a sentence-transformers model from a path or `package:NAME`.

    Blocks, the first time for some ten seconds (the export): call it off the event loop.
    `cache` holds exports, by default `$XDG_CACHE_HOME/rejoinder` or `~/.cache/rejoinder`.
    Raises `EmbedderFault` when there is no such model.
    """
    files = read_model_files(model)
    tokenizer = load_tokenizer(files)
    runtime = load_runtime(files, tokenizer, threads=threads, cache=cache or _default_cache())
    return ModelEmbedder(
        runtime,
        window=Window(files, tokenizer),
        identity=_identity(files, runtime),
    )


def _identity(files: ModelFiles, runtime: Runtime) -> str:
    # The prefix and the pooling are in the digest, as files; they stand here to be read.
    parts = (files.digest[:16], files.pooling, files.prefix, runtime.name, str(runtime.dimension))
    return "/".join(parts)


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rejoinder"
