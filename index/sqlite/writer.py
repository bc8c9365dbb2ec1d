"""The one thread of a process that writes to the file.

Jobs are taken in batches, a transaction each. Purges overtake all else and are on the disk (one
fsync for the batch) before they are acknowledged; everything else is acknowledged after the commit,
which a killed process cannot undo, though a power failure may.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from index.errors import StoreFault
from index.sqlite.database import Database
from index.sqlite.transaction import Transaction

Result = TypeVar("Result")

MAX_BATCH = 64
BATCH_SHARE = 8
"""A batch ends with the job that reaches this part of the log's length: pages take more room there
than entries have bytes."""
MAX_WAITING_BYTES = 64 * 2**20
"""Entries that wait for a slow disk; more are refused, and their answers just not kept."""


class Job(msgspec.Struct, kw_only=True, eq=False):
    """Work inside a transaction, and who waits for it. Mutable: `outcome` comes later."""

    work: Callable[[Transaction], Any]
    future: "asyncio.Future[Any]"
    size_bytes: int
    outcome: Any = None
    """A result; an exception when `failed`."""
    failed: bool = False


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one transaction. `durable`: on the disk when it is acknowledged."""

    jobs: list[Job]
    durable: bool


class Writer:
    """Owns the writing connection. `run` is called on one event loop."""

    def __init__(self, database: Database, *, disk_bytes: int) -> None:
        self._database = database
        self._disk_bytes = disk_bytes
        self._max_batch_bytes = database.wal_bytes // BATCH_SHARE
        self._connection = database.connect("writer")
        self._durable: bool | None = None
        """How the connection is set now; None before the first batch."""
        self._urgent: deque[Job] = deque()
        self._ordinary: deque[Job] = deque()
        self._waiting_bytes = 0
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="rejoinder-writer", daemon=True)
        self._thread.start()

    async def run(
        self,
        work: Callable[[Transaction], Result],
        *,
        urgent: bool = False,
        size_bytes: int = 0,
    ) -> Result:
        """Do `work` in a transaction; its result once that is committed (`urgent`: on the disk).

        `work` may be done twice, when another job of its batch spoils the first transaction.
        StoreFault when it could not be written, or too much waits already.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        job = Job(work=work, future=future, size_bytes=size_bytes)
        with self._wake:
            if self._closing:
                raise StoreFault("the store is closed")
            if self._waiting_bytes + size_bytes > MAX_WAITING_BYTES:
                raise StoreFault("the disk is too slow: too much waits to be written")
            self._waiting_bytes += size_bytes
            (self._urgent if urgent else self._ordinary).append(job)
            self._wake.notify()
        return await future

    def close(self) -> None:
        """Write what waits, then end. Blocks. Idempotent."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while (batch := self._next_batch()).jobs:
                self._write(batch)
                self._acknowledge(batch)
        finally:
            self._connection.close()

    def _next_batch(self) -> Batch:
        """Wait for jobs of one lane; none come when the writer is closed and all is done."""
        with self._wake:
            while not (self._urgent or self._ordinary or self._closing):
                self._wake.wait()
            durable = bool(self._urgent)
            lane = self._urgent if durable else self._ordinary
            jobs: list[Job] = []
            size_bytes = 0
            while lane and len(jobs) < MAX_BATCH and size_bytes <= self._max_batch_bytes:
                jobs.append(lane.popleft())
                size_bytes += jobs[-1].size_bytes
            self._waiting_bytes -= size_bytes
            return Batch(jobs=jobs, durable=durable)

    def _write(self, batch: Batch) -> None:
        """One transaction; if it fails, one for each job, so that only the bad one suffers."""
        try:
            outcomes = self._transact(batch)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the job
            if len(batch.jobs) > 1:
                for job in batch.jobs:
                    self._write(Batch(jobs=[job], durable=batch.durable))
                return
            (job,) = batch.jobs
            job.failed = True
            job.outcome = error
            if isinstance(error, sqlite3.Error):
                job.outcome = self._database.fault(error)
                job.outcome.__cause__ = error
        else:
            for job, outcome in zip(batch.jobs, outcomes, strict=True):
                job.outcome = outcome

    def _transact(self, batch: Batch) -> list[Any]:
        if batch.durable is not self._durable:
            level = "FULL" if batch.durable else "NORMAL"
            self._connection.execute(f"PRAGMA synchronous = {level}")
            self._durable = batch.durable
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            transaction = Transaction(self._connection, disk_bytes=self._disk_bytes)
            outcomes = [job.work(transaction) for job in batch.jobs]
            transaction.finish()
            self._connection.execute("COMMIT")
            self._database.pulse.beat()
        except BaseException:
            self._connection.rollback()
            raise
        return outcomes

    def _acknowledge(self, batch: Batch) -> None:
        loop = batch.jobs[0].future.get_loop()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, batch.jobs)


def _settle(jobs: list[Job]) -> None:
    for job in jobs:
        if job.future.done():  # the waiter was cancelled
            continue
        if job.failed:
            job.future.set_exception(job.outcome)
        else:
            job.future.set_result(job.outcome)
