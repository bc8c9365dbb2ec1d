"""Pages that outlive their engine: found, used and purged again, on a tiny model."""

import random
from pathlib import Path

import pytest
import torch
from enginekit import Kit, answer
from test_archive import PAGE, ask, at, greedy, prompt

from engine.engine import Engine
from engine.process.protocol import Purge


def engine_on(tiny: Kit, path: Path, **fields: object) -> Engine:
    return tiny.engine(page_tokens=PAGE, kv_disk=str(path), **fields)


def end(engine: Engine) -> None:
    """As a process that ends: what was handed to the writer is written, and the lock is gone."""
    shelf = engine._paging.archive._shelf
    shelf._finish()
    shelf._file.close()


def end_late(engine: Engine) -> None:
    """The same for one that got the file later."""
    shelf = engine._paging.archive._shelf._shelf
    shelf._finish()
    shelf._file.close()


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
    slot_bytes = (len(data) - 4096) // 4
    data[4096 + 2 * slot_bytes + 8192 + 7] ^= 1  # in the third page
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
    slot_bytes = probe._paging.archive._shelf._file.slot_bytes
    end(probe)
    first = engine_on(tiny, path, kv_disk_bytes=6 * slot_bytes)
    source = random.Random(1)
    prompts = [prompt(source.randrange(20, 90), seed=n) for n in range(8)]
    for ids in prompts:
        ask(first, ids, max_tokens=1, as_of=at(0))
        first._paging.archive._shelf._finish()
    assert path.stat().st_size <= 4096 + 6 * slot_bytes
    end(first)
    second = engine_on(tiny, path, kv_disk_bytes=6 * slot_bytes)
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
    engine._paging.archive._shelf._file.close()
    assert ask(engine, prompt(40), as_of=at(0))[0] == expected
    assert ask(engine, prompt(40), as_of=at(0)) == (expected, 32)
    assert engine.purge(Purge(everything=True, moment=at(1))).num_pages == 2


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
