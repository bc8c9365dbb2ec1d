"""Texts that wait at the same time travel together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from index.errors import EmbedderFault, TextRefused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

MAX_BATCH_TEXTS = 32


class _Job(msgspec.Struct, frozen=True, eq=False):
    texts: tuple[str, ...]
    vectors: "asyncio.Future[Vectors]"


class Batching:
    """Up to `max_trips` trips of `encode` are under way; what waits meanwhile goes with the next.

    Belongs to one event loop. Nothing is delayed to wait for company.
    """

    def __init__(
        self,
        encode: "Callable[[list[str]], Awaitable[Vectors]]",
        *,
        max_trips: int = 1,
        max_texts: int = MAX_BATCH_TEXTS,
    ) -> None:
        """`encode` gives one row a text. `max_texts` of 1: each asker's texts go alone."""
        self._encode = encode
        self._max_trips = max_trips
        self._max_texts = max_texts
        self._jobs: list[_Job] = []
        self._trips: set[asyncio.Task[None]] = set()
        self._num_working = 0
        """Trips that will look for jobs again; others of `_trips` are over but for their end."""
        self._closed = False

    async def embed(self, texts: Sequence[str]) -> "Vectors":
        """Rows of these texts. Raises EmbedderFault. Who is cancelled disturbs nobody."""
        if self._closed:
            raise EmbedderFault("the embedder is closed")
        loop = asyncio.get_running_loop()
        job = _Job(tuple(texts), loop.create_future())
        self._jobs.append(job)
        if self._num_working < self._max_trips:
            self._num_working += 1
            trip = loop.create_task(self._work())
            self._trips.add(trip)
            trip.add_done_callback(self._trips.discard)
        return await job.vectors

    async def close(self, *, breaks_off: bool = False) -> None:
        """Whoever waits is cancelled; returns when no trip is under way, which are waited for or
        cancelled. Idempotent."""
        self._closed = True
        for job in self._jobs:
            job.vectors.cancel()
        if breaks_off:
            for trip in self._trips:
                trip.cancel()
        await asyncio.gather(*self._trips, return_exceptions=breaks_off)

    async def _work(self) -> None:
        try:
            while batch := self._take():
                await self._finish(batch)
        finally:
            self._num_working -= 1

    async def _finish(self, batch: list[_Job]) -> None:
        try:
            await self._answer(batch)
        except asyncio.CancelledError:
            for job in batch:
                job.vectors.cancel()
            raise

    def _take(self) -> list[_Job]:
        """The next jobs that somebody still waits for, up to a batch."""
        batch: list[_Job] = []
        num_texts = 0
        while self._jobs and num_texts < self._max_texts:
            job = self._jobs.pop(0)
            if not job.vectors.done():
                batch.append(job)
                num_texts += len(job.texts)
        return batch

    async def _answer(self, batch: list[_Job]) -> None:
        texts = [text for job in batch for text in job.texts]
        try:
            vectors = await self._encode(texts)
        except TextRefused as refusal:
            if len(batch) == 1:
                _fail(batch, refusal)
                return
            for job in batch:  # one text is to blame: the others need not suffer
                await self._answer([job])
            return
        except Exception as error:  # noqa: BLE001  (a model may raise anything; all who wait hear)
            _fail(batch, error)
            return
        first = 0
        for job in batch:
            if not job.vectors.done():
                job.vectors.set_result(vectors[first : first + len(job.texts)])
            first += len(job.texts)


def _fail(batch: list[_Job], error: Exception) -> None:
    for job in batch:
        if job.vectors.done():
            continue
        fault = EmbedderFault(str(error)) if isinstance(error, EmbedderFault) else None
        fault = fault or EmbedderFault(f"the embedding model failed: {error}")
        fault.__cause__ = error
        job.vectors.set_exception(fault)
