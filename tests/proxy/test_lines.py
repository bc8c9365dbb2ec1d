"""Lines that are appended to a file, and when they are in it."""

import asyncio
import os
import threading

import pytest

from proxy.observing import lines as module
from proxy.observing.lines import Lines

DEADLINE_S = 60


def lines_at(path):
    return Lines(str(path), lost=lambda _: pytest.fail("lost"))


async def test_a_flush_waits_for_lines_that_are_on_their_way(tmp_path, monkeypatch):
    on_their_way, go_on = threading.Event(), threading.Event()
    write = module._write

    def slow(path, lines):
        on_their_way.set()
        go_on.wait(DEADLINE_S)
        write(path, lines)

    monkeypatch.setattr(module, "_write", slow)
    lines = lines_at(tmp_path / "log")
    lines.append(b"one\n")
    await asyncio.to_thread(on_their_way.wait)
    flushing = asyncio.create_task(lines.flush())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not flushing.done()
    lines.append(b"two\n")
    go_on.set()
    await flushing
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n", "in order, and all of them"


async def test_lines_after_a_flush_are_written_by_themselves(tmp_path):
    lines = lines_at(tmp_path / "log")
    lines.append(b"one\n")
    await lines.flush()  # before the first turn of what would have written it
    lines.append(b"two\n")
    async with asyncio.timeout(DEADLINE_S):
        while (tmp_path / "log").read_bytes() != b"one\ntwo\n":
            await asyncio.sleep(0.01)


async def test_lines_beyond_the_bound_are_lost_and_counted(tmp_path):
    lost = []
    lines = Lines(str(tmp_path / "log"), lost=lost.append, max_pending_bytes=30)
    for number in range(5):
        lines.append(b"line %d....\n" % number)  # 12 bytes
    await lines.flush()
    assert (tmp_path / "log").read_bytes() == b"line 0....\nline 1....\n"
    assert sum(lost) == 3


async def test_a_failure_is_logged_once_until_it_is_over(tmp_path, caplog):
    path = tmp_path / "taken" / "log"
    path.parent.touch()
    lines = Lines(str(path), lost=lambda _: None)
    for _ in range(3):
        lines.append(b"a\n")
        await lines.flush()
    path.parent.unlink()
    lines.append(b"b\n")
    await lines.flush()
    assert path.read_bytes() == b"b\n"
    assert len(caplog.records) == 1


async def test_lines_on_a_pipe_are_written_whole(tmp_path, monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setattr("proxy.observing.lines._STDOUT", writing)
    lines = Lines(None, lost=lambda _: pytest.fail("lost"))
    sent = [b"%d" % number * 500 + b"\n" for number in range(20)]
    for line in sent:
        lines.append(line)
    await lines.flush()
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.readlines() == sent
