"""The thread that writes: what it acknowledges, and when."""

import asyncio
import sqlite3
import threading

import pytest

from index.errors import StoreFault
from index.sqlite.database import open_database
from index.sqlite.writer import MAX_WAITING_BYTES, Writer

DISK_BYTES = 2**28


@pytest.fixture
def database(tmp_path):
    database = open_database(tmp_path / "store.db", disk_bytes=DISK_BYTES)
    yield database
    database.close()


@pytest.fixture
def writer(database):
    writer = Writer(database, disk_bytes=DISK_BYTES)
    yield writer
    writer.close()


def synchronous(transaction):
    return transaction.connection.execute("PRAGMA synchronous").fetchone()[0]


def log_a_change(transaction):
    transaction.state.change += 1


async def test_urgent_jobs_are_synced_to_the_disk_and_others_are_not(writer):
    normal, full = 1, 2
    assert await writer.run(synchronous) == normal
    assert await writer.run(synchronous, urgent=True) == full
    assert await writer.run(synchronous) == normal


async def test_job_is_committed_when_it_is_acknowledged(writer, database):
    other = database.connect("reader")
    for number in range(1, 20):
        await writer.run(log_a_change)
        assert other.execute("SELECT change FROM state").fetchone() == (number,)
    other.close()


async def test_job_that_fails_is_undone_and_leaves_its_batch_alone(writer):
    def fail_in_sqlite(transaction):
        log_a_change(transaction)
        transaction.connection.execute("INSERT INTO nowhere VALUES (1)")

    def fail_otherwise(transaction):
        transaction.connection.execute("UPDATE state SET change = 1000")
        raise ZeroDivisionError

    jobs = (log_a_change, fail_in_sqlite, log_a_change, fail_otherwise, log_a_change)
    outcomes = await asyncio.gather(*map(writer.run, jobs), return_exceptions=True)
    assert outcomes[::2] == [None, None, None]
    assert isinstance(outcomes[1], StoreFault)
    assert isinstance(outcomes[1].__cause__, sqlite3.OperationalError)
    assert isinstance(outcomes[3], ZeroDivisionError)
    assert await writer.run(lambda transaction: transaction.state.change) == 3


async def test_what_waits_is_bounded_while_the_disk_is_slow(writer):
    started, go_on = threading.Event(), threading.Event()

    def be_slow(transaction):
        started.set()
        go_on.wait()

    slow = asyncio.ensure_future(writer.run(be_slow))
    await asyncio.to_thread(started.wait)
    waiting = asyncio.ensure_future(writer.run(log_a_change, size_bytes=MAX_WAITING_BYTES))
    await asyncio.sleep(0)
    with pytest.raises(StoreFault, match="too slow"):
        await writer.run(log_a_change, size_bytes=1)
    go_on.set()
    await asyncio.gather(slow, waiting)
    await writer.run(log_a_change, size_bytes=MAX_WAITING_BYTES)
    assert await writer.run(lambda transaction: transaction.state.change) == 2


async def test_closing_writes_what_waits_then_refuses(writer, database):
    jobs = [asyncio.ensure_future(writer.run(log_a_change)) for _ in range(300)]
    await asyncio.sleep(0)
    await asyncio.to_thread(writer.close)
    await asyncio.gather(*jobs)
    with pytest.raises(StoreFault, match="closed"):
        await writer.run(log_a_change)
    other = database.connect("reader")
    assert other.execute("SELECT change FROM state").fetchone() == (300,)
    other.close()
