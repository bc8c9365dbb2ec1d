"""Embeddings of any OpenAI-compatible server.

A server says little of the model behind it, so the model is known by what it does: the vectors of a
few probes are its fingerprint, and part of the identity that names the index. They are compared
again whenever the server was away or calls its model by another name; one of them travels beside
every batch of texts, so that no vector of another model is used. When they differ, this embedder is
of no use any more (`outdated`): another one has to be opened, with an index of its own.

    asked   -> answers        vectors
            -> does not       away: every text is refused at once, while the probes are sent again
                              in the background, ever more slowly
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from index.embedders.batching import MAX_BATCH_TEXTS, Batching
from index.embedders.embedding_server import Server
from index.embedders.embedding_wire import Model, ask
from index.embedders.fingerprint import PROBES, agree, fingerprint
from index.embedders.scripts import is_written_in
from index.errors import EmbedderFault, TextRefused

if TYPE_CHECKING:
    from index.embedders.batching import Vectors

logger = logging.getLogger("rejoinder.embedder")

_MAX_TRIPS = 4
_CHECK_EVERY_S = 2.0
"""Where texts travel alone: a probe of its own for each of them would double what is asked."""
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_LONG_WORD = re.compile(r"[0-9A-Za-z\u00c0-\u024f]{101}")
"""Of Latin letters: WordPiece, which may be what the server has, reads all of these as one word."""


class RemoteEmbedder:
    """See `index.embedders.embedder.Embedder`. Open it with `open`; belongs to one event loop."""

    def __init__(
        self,
        server: Server,
        model: Model,
        *,
        probes: "Vectors",
        named: str,
        identity: str,
        is_alone: bool,
        scripts: frozenset[str] | None,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`named`: what the server calls its model. `is_alone`: its vectors depend on what is
        embedded beside them, so that each text has to travel alone."""
        self.identity = identity
        self.dimension = int(probes.shape[1])
        self.outdated = asyncio.Event()
        """The server has another model now."""
        self._server = server
        self._model = model
        self._probes = probes
        self._named = named
        self._is_alone = is_alone
        self._scripts = scripts
        self._max_bytes = max_bytes
        self._clock = clock
        self._checked_at = clock()
        self._away = ""
        self._repair: asyncio.Task[None] | None = None
        self._batching = Batching(
            self._encode, max_trips=_MAX_TRIPS, max_texts=1 if is_alone else MAX_BATCH_TEXTS
        )

    @classmethod
    async def open(
        cls,
        server: Server,
        model: Model,
        *,
        cache: Path,
        scripts: frozenset[str] | None,
        max_bytes: int,
    ) -> "RemoteEmbedder":
        """Ask the server for the probes. `cache`: a folder where its fingerprint is kept.
        `scripts`: those that the model was trained on, None for all. `max_bytes`: longest text, in
        UTF-8. Raises EmbedderFault when the server does not answer with vectors, or with one and
        the same to every text."""
        together = await ask(server, model, PROBES)
        alone = [(await ask(server, model, (probe,))).vectors[0] for probe in PROBES]
        probes = np.asarray(alone, dtype=np.float32)
        if agree(probes[1:], probes[:-1]):
            raise EmbedderFault(f"{server.name} has the same embedding for every text")
        mark = await asyncio.to_thread(fingerprint, probes, f"{server.name} {model}", cache)
        dimension = probes.shape[1]
        return cls(
            server,
            model,
            probes=probes,
            named=together.model,
            identity=f"remote/{model.name}/{model.prefix}/{mark}/{dimension}",
            is_alone=not agree(probes, together.vectors),
            scripts=scripts,
            max_bytes=max_bytes,
        )

    @property
    def away(self) -> str:
        return self._away

    def refuses(self, text: str) -> str | None:
        """`empty` | `script` | `too_long` | `unreadable` | None."""
        if not text or text.isspace():
            return "empty"
        if not is_written_in(text, self._scripts):
            return "script"
        if len(text.encode("utf-8", "replace")) > self._max_bytes:
            return "too_long"
        return "unreadable" if _LONG_WORD.search(text) else None

    async def embed(self, texts: Sequence[str]) -> "Vectors":
        """See `Embedder.embed`. Raises EmbedderFault at once while the server is away."""
        if self.outdated.is_set():
            raise EmbedderFault(f"{self._server.name} has another model than at the start")
        if self._away:
            raise EmbedderFault(self._away)
        if not self._is_alone:
            return await self._batching.embed(texts)
        return np.concatenate([await self._batching.embed((text,)) for text in texts])

    async def close(self) -> None:
        """Idempotent."""
        # First, since a trip that fails begins a repair.
        await self._batching.close(breaks_off=True)
        if self._repair is not None:
            self._repair.cancel()
            await asyncio.gather(self._repair, return_exceptions=True)
        await self._server.close()

    async def _encode(self, texts: list[str]) -> "Vectors":
        try:
            return await self._checked(texts)
        except TextRefused:
            raise
        except EmbedderFault as fault:
            self._leave(str(fault))
            raise

    async def _checked(self, texts: list[str]) -> "Vectors":
        """Vectors, of the model that was there at the start."""
        if self._is_alone and self._clock() - self._checked_at >= _CHECK_EVERY_S:
            await self._compare(PROBES[:1])
        beside = () if self._is_alone else PROBES[:1]
        answer = await ask(self._server, self._model, (*texts, *beside))
        if answer.vectors.shape[1] != self.dimension or not agree(
            answer.vectors[len(texts) :], self._probes[: len(beside)]
        ):
            raise self._replaced()
        if answer.model != self._named:
            await self._compare()
            self._named = answer.model
        return answer.vectors[: len(texts)]

    async def _compare(self, probes: Sequence[str] = PROBES) -> None:
        """Raises EmbedderFault when the server does not answer, or not as it did at the start."""
        # One by one, as at the start: some servers' vectors depend on their neighbours.
        for place, probe in enumerate(probes):
            vectors = (await ask(self._server, self._model, (probe,))).vectors
            if not agree(vectors, self._probes[place : place + 1]):
                raise self._replaced()
        self._checked_at = self._clock()

    def _replaced(self) -> EmbedderFault:
        if not self.outdated.is_set():
            logger.error("%s has another embedding model now", self._server.name)
            self.outdated.set()
        return EmbedderFault(f"{self._server.name} has another model than at the start")

    def _leave(self, why: str) -> None:
        if self._away or self.outdated.is_set():
            return
        logger.warning("no embeddings until it answers again: %s", why)
        self._away = why
        self._repair = asyncio.get_running_loop().create_task(self._return())

    async def _return(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self.outdated.is_set():
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            try:
                await self._compare()
            except EmbedderFault as fault:
                self._away = str(fault)
                continue
            logger.warning("%s answers again", self._server.name)
            self._away = ""
            return
