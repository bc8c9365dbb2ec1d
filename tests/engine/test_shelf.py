"""Pages that outlive their engine: found, used and purged again, on a tiny model."""

import contextlib
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from enginekit import Kit, answer
from test_archive import PAGE, ask, at, greedy, prompt

from engine.engine import Engine
from engine.kv.diskshelf import DiskShelf
from engine.kv.purges import EVERYTHING
from engine.process.protocol import Purge


def engine_on(tiny: Kit, path: Path, **fields: object) -> Engine:
    return tiny.engine(page_tokens=PAGE, kv_disk=str(path), **fields)


def end(engine: Engine) -> None:
    """As a process that ends: what was handed to the writer is written, and the lock is gone."""
    close(engine._paging.archive._shelf)


def end_late(engine: Engine) -> None:
    """The same for one that got the file later."""
    close(engine._paging.archive._shelf._shelf)


def close(shelf: DiskShelf) -> None:
    shelf._finish()
    shelf.check_integrity()
    shelf._file.close()


def slot_bytes(engine: Engine) -> int:
    return engine._paging.archive._shelf._file.slot_bytes


@contextlib.contextmanager
def slow_disk(engine: Engine) -> Iterator[None]:
    """Nothing is written while this is open."""
    gate = threading.Event()
    engine._paging.archive._shelf._writer.submit(gate.wait)
    try:
        yield
    finally:
        gate.set()


@contextlib.contextmanager
def broken_disk(engine: Engine) -> Iterator[None]:
    """Nothing can be read nor written at any place: a pipe has none."""
    shelf = engine._paging.archive._shelf
    ours, pipe = shelf._file._descriptor, os.pipe()
    shelf._file._descriptor = pipe[1]
    try:
        yield
    finally:
        shelf._finish()
        shelf._file._descriptor = ours
        for end_of_pipe in pipe:
            os.close(end_of_pipe)


def forget_in_memory(engine: Engine) -> None:
    """As when other requests needed the memory: what is met from now on comes from disk."""
    engine._paging.prefix.purge(EVERYTHING)


@pytest.mark.parametrize("kv_dtype", ["fp32", "int8"])
def test_pages_are_the_same_cold_hit_restored_and_in_the_file(
    tiny: Kit, tmp_path: Path, kv_dtype: str
) -> None:
    ids = prompt(70)
    first = engine_on(tiny, tmp_path / "pages", kv_dtype=kv_dtype)
    cold = ask(first, ids, as_of=at(0))
    hit = ask(first, ids, as_of=at(0))
    chain = first._paging.archive.chain("")
    pages = first._paging.prefix.find(chain, ids, max_pages=4)
    before = first._pool.storage[pages].clone()
    end(first)
    second = engine_on(tiny, tmp_path / "pages", kv_dtype=kv_dtype)
    restored = ask(second, ids, as_of=at(0))
    assert (hit, restored) == ((cold[0], 64), (cold[0], 64))
    pages = second._paging.prefix.find(second._paging.archive.chain(""), ids, max_pages=4)
    assert torch.equal(second._pool.storage[pages], before), "bit by bit"
    assert second.occupancy().restored_tokens == 64
    end(second)


def test_a_restore_says_what_it_really_found(tiny: Kit, tmp_path: Path) -> None:
    path = tmp_path / "pages"
    first = engine_on(tiny, path)
    cold = ask(first, prompt(70), as_of=at(0))
    end(first)
    data = bytearray(path.read_bytes())
    data[4096 + 2 * slot_bytes(first) + 8192 + 7] ^= 1  # in the third page
    path.write_bytes(data)
    second = engine_on(tiny, path)
    assert ask(second, prompt(70), as_of=at(0)) == (cold[0], 32)
    end(second)


def test_nothing_is_read_before_it_is_known_how_far_purges_have_come(
    tiny: Kit, tmp_path: Path
) -> None:
    first = engine_on(tiny, tmp_path / "pages")
    ask(first, prompt(70), as_of=at(3))
    end(first)
    second = engine_on(tiny, tmp_path / "pages")
    assert ask(second, prompt(70))[1] == 0
    end(second)
    third = engine_on(tiny, tmp_path / "pages")
    assert ask(third, prompt(70), as_of=at(4))[1] == 0, "purges were made meanwhile"
    third._paging.archive._shelf._finish()
    assert third.occupancy().disk_pages == 4
    end(third)


@pytest.mark.parametrize("tags_on_a_hit_only", [False, True])
def test_a_purge_by_tag_beats_the_restart(
    tiny: Kit, tmp_path: Path, tags_on_a_hit_only: bool
) -> None:
    path = tmp_path / "pages"
    first = engine_on(tiny, path)
    if tags_on_a_hit_only:
        ask(first, prompt(70), tags=(), as_of=at(0))
        first._paging.archive._shelf._finish()
    ask(first, prompt(70), tags=("a",), as_of=at(0))
    ask(first, prompt(70, seed=1), tags=("b",), as_of=at(0))
    end(first)
    second = engine_on(tiny, path)
    assert second.purge(Purge(tags=("a",), dry_run=True, moment=at(0))).num_pages == 4
    assert second.purge(Purge(tags=("a",), moment=at(1))).num_pages == 4
    end(second)
    third = engine_on(tiny, path)
    assert ask(third, prompt(70), tags=("a",), as_of=at(1))[1] == 0
    assert ask(third, prompt(70, seed=1), tags=("b",), as_of=at(1))[1] == 64
    end(third)


def test_the_file_keeps_to_its_size_and_its_pages_can_be_reached(tiny: Kit, tmp_path: Path) -> None:
    path = tmp_path / "pages"
    probe = engine_on(tiny, path)
    max_bytes = 6 * slot_bytes(probe)
    end(probe)
    first = engine_on(tiny, path, kv_disk_bytes=max_bytes)
    source = random.Random(1)
    prompts = [prompt(source.randrange(20, 90), seed=n) for n in range(8)]
    for ids in prompts:
        ask(first, ids, max_tokens=1, as_of=at(0))
        first._paging.archive._shelf._finish()
    assert path.stat().st_size <= 4096 + max_bytes
    end(first)
    second = engine_on(tiny, path, kv_disk_bytes=max_bytes)
    hits = [ask(second, ids, max_tokens=1, as_of=at(0))[1] for ids in reversed(prompts)]
    assert hits[0] == (len(prompts[-1]) - 1) // PAGE * PAGE, "the last that came is there"
    end(second)


def test_a_pool_that_is_smaller_than_what_lies_on_disk_takes_what_fits(
    tiny: Kit, tmp_path: Path
) -> None:
    first = engine_on(tiny, tmp_path / "pages")
    ask(first, prompt(120), as_of=at(0))
    end(first)
    small = engine_on(tiny, tmp_path / "pages", num_pages=9)
    expected = ask(tiny.engine(page_tokens=PAGE), prompt(120))
    assert ask(small, prompt(120), as_of=at(0)) == (expected[0], 112)
    small.pages.check_integrity()
    end(small)


def test_a_disk_that_fails_costs_no_answer(tiny: Kit, tmp_path: Path) -> None:
    engine = engine_on(tiny, tmp_path / "pages")
    expected = answer(tiny.engine(page_tokens=PAGE), prompt(40), greedy(8)).text
    with broken_disk(engine):
        assert ask(engine, prompt(40), as_of=at(0))[0] == expected
        assert ask(engine, prompt(40), as_of=at(0)) == (expected, 32)
        assert engine.purge(Purge(everything=True, moment=at(1))).num_pages == 2
    end(engine)


def test_an_engine_whose_file_is_in_use_works_without(tiny: Kit, tmp_path: Path) -> None:
    first = engine_on(tiny, tmp_path / "pages")
    second = engine_on(tiny, tmp_path / "pages")
    assert ask(second, prompt(40), as_of=at(0)) == ask(first, prompt(40), as_of=at(0))
    assert second.occupancy().disk_pages == 0
    end(first)


def test_an_engine_takes_over_the_file_when_the_one_before_it_has_ended(
    tiny: Kit, tmp_path: Path
) -> None:
    first = engine_on(tiny, tmp_path / "pages")
    cold = ask(first, prompt(70), as_of=at(0))
    second = engine_on(tiny, tmp_path / "pages")
    ask(second, prompt(40, seed=1), as_of=at(0))
    end(first)
    assert ask(second, prompt(70), as_of=at(0)) == (cold[0], 64)
    ask(second, prompt(70, seed=2), as_of=at(0))
    end_late(second)
    third = engine_on(tiny, tmp_path / "pages")
    assert ask(third, prompt(70, seed=2), as_of=at(0))[1] == 64, "it writes there, too"
    end(third)


@pytest.mark.parametrize("told", ["the one before", "the one after"])
def test_what_was_left_by_an_engine_that_saw_other_purges_is_not_taken_over(
    tiny: Kit, tmp_path: Path, told: str
) -> None:
    first = engine_on(tiny, tmp_path / "pages")
    ask(first, prompt(70), tags=("a",), as_of=at(0))
    second = engine_on(tiny, tmp_path / "pages")
    ask(second, prompt(40, seed=1), as_of=at(0))
    engine = first if told == "the one before" else second
    engine.purge(Purge(tags=("b",), moment=at(1)))
    end(first)
    assert ask(second, prompt(70), tags=("a",), as_of=at(1))[1] == 0
    end_late(second)
    third = engine_on(tiny, tmp_path / "pages")
    assert third.purge(Purge(tags=("a",), dry_run=True, moment=at(1))).num_pages == 4
    end(third)


def test_a_slow_disk_and_a_full_file_never_give_one_page_for_another(
    tiny: Kit, tmp_path: Path
) -> None:
    probe = engine_on(tiny, tmp_path / "probe")
    engine = engine_on(tiny, tmp_path / "pages", kv_disk_bytes=2 * slot_bytes(probe))
    end(probe)
    shelf = engine._paging.archive._shelf
    ids = prompt(60)
    cold = ask(engine, ids[:34], tags=("a",), max_tokens=1, as_of=at(0))
    shelf._finish()
    with slow_disk(engine):  # two pages get a tag, a third one is new: there is no place for it
        ask(engine, ids[:50], tags=("b",), max_tokens=1, as_of=at(0))
        shelf.check_integrity()
    shelf._finish()
    forget_in_memory(engine)
    assert ask(engine, ids[:34], tags=("a",), max_tokens=1, as_of=at(0)) == (cold[0], 32)
    end(engine)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_purge_finds_tags_that_the_disk_has_not_taken_down_yet(
    tiny: Kit, tmp_path: Path, is_written: bool
) -> None:
    engine = engine_on(tiny, tmp_path / "pages")
    gate = contextlib.ExitStack()
    if not is_written:
        gate.enter_context(slow_disk(engine))
    ask(engine, prompt(70), tags=("a",), as_of=at(0))
    if is_written:
        engine._paging.archive._shelf._finish()
        gate.enter_context(slow_disk(engine))
    ask(engine, prompt(330, seed=1), tags=("c",), as_of=at(0))  # more than may wait to be written
    ask(engine, prompt(70), tags=("b",), as_of=at(0))
    gate.close()
    assert engine.purge(Purge(tags=("b",), moment=at(1))).num_pages == 4
    assert ask(engine, prompt(70), tags=("d",), as_of=at(1))[1] == 0
    end(engine)


def test_tags_of_a_page_on_disk_outlive_its_page_in_memory(tiny: Kit, tmp_path: Path) -> None:
    engine = engine_on(tiny, tmp_path / "pages")
    with slow_disk(engine):  # so it is computed again, not restored
        ask(engine, prompt(70), tags=("a",), as_of=at(0))
        forget_in_memory(engine)
        assert ask(engine, prompt(70), tags=("b",), as_of=at(0))[1] == 0
    end(engine)
    second = engine_on(tiny, tmp_path / "pages")
    assert second.purge(Purge(tags=("a",), moment=at(1))).num_pages == 4
    assert ask(second, prompt(70), as_of=at(1))[1] == 0
    end(second)


def test_what_does_not_fit_any_more_leaves_the_file_and_so_does_a_second_copy(
    tiny: Kit, tmp_path: Path
) -> None:
    path = tmp_path / "pages"
    first = engine_on(tiny, path)
    ask(first, prompt(70), as_of=at(0))
    end(first)
    size, data = slot_bytes(first), path.read_bytes()
    path.write_bytes(data[: 4096 + 3 * size] + data[4096 : 4096 + size])  # page 0 where 3 was
    second = engine_on(tiny, path)
    assert second.occupancy().disk_pages == 3
    end(second)
    assert path.read_bytes()[4096 + 3 * size :] == bytes(size)
    third = engine_on(tiny, path, kv_disk_bytes=2 * size)
    assert (third.occupancy().disk_pages, path.stat().st_size) == (2, 4096 + 2 * size)
    end(third)


def test_a_purge_after_the_disk_failed_takes_all_there_is(
    tiny: Kit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_on(tiny, tmp_path / "pages")
    shelf = engine._paging.archive._shelf
    ask(engine, prompt(70), tags=("a",), as_of=at(0))
    shelf._finish()
    with broken_disk(engine):
        ask(engine, prompt(70), tags=("b",), as_of=at(0))  # a tag that cannot be written
        forget_in_memory(engine)
        assert ask(engine, prompt(70), tags=("b",), as_of=at(0))[1] == 0
    assert "pages are not written to disk any more" in caplog.text
    engine.purge(Purge(tags=("c",), moment=at(1)))
    end(engine)
    second = engine_on(tiny, tmp_path / "pages")
    assert second.occupancy().disk_pages == 0
    end(second)


def test_a_tiny_file_a_slow_disk_purges_and_restarts_change_no_answer(
    tiny: Kit, tmp_path: Path
) -> None:
    """Prompts that begin alike come under tags; now and then a tag is purged, memory is taken, the
    disk stands still, the engine is started anew. What a purged tag has touched is never met."""
    source = random.Random(3)
    begins = [prompt(40, seed=seed) for seed in range(3)]
    touched: list[set[str]] = [set() for _ in begins]
    probe = engine_on(tiny, tmp_path / "probe")
    room = {"kv_disk_bytes": 7 * slot_bytes(probe), "num_pages": 24}
    end(probe)
    roomy = tiny.engine(page_tokens=PAGE)
    engine, sequence, met = engine_on(tiny, tmp_path / "pages", **room), 0, 0
    gate = contextlib.ExitStack()
    for _ in range(80):
        number, tag = source.randrange(3), source.choice("abc")
        ids = [*begins[number], *prompt(source.choice((3, 20)), seed=source.randrange(4))]
        text, cached = ask(engine, ids, tags=(tag,), max_tokens=3, as_of=at(sequence))
        assert text == ask(roomy, ids, max_tokens=3)[0]
        assert not cached or touched[number]
        met += bool(cached)
        touched[number] = {tag, *(touched[number] if cached else ())}
        engine._paging.archive._shelf.check_integrity()
        match source.randrange(9):
            case 0:
                gate.close()
                sequence += 1
                engine.purge(Purge(tags=(tag,), moment=at(sequence)))
                touched = [set() if tag in tags else tags for tags in touched]
            case 1 | 2:
                forget_in_memory(engine)
            case 3:
                gate.enter_context(slow_disk(engine))
            case 4 | 5:
                gate.close()
            case 6:
                gate.close()
                end(engine)
                engine = engine_on(tiny, tmp_path / "pages", **room)
    gate.close()
    assert met > 10
    end(engine)
