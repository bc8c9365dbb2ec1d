"""The file of pages: what is found again, and what is never misread."""

import errno
import os
import stat
from pathlib import Path

import pytest

from engine.kv.disk import FileBusy, PageFile, Shape
from engine.kv.tree import KnownPage
from engine.process.protocol import Moment

SHAPE = Shape(fingerprint="ab" * 32, page_bytes=5000, page_tokens=2)
NOW = Moment(generation="g", sequence=3)


def page(number: int, *, place: int, tags: frozenset[str] | None = frozenset("t")) -> KnownPage:
    return KnownPage(
        digest=bytes([number]) * 32, parent=bytes([number - 1]) * 32,
        token_ids=(number, number + 1), place=place, tags=tags,
    )  # fmt: skip


def contents(number: int) -> bytes:
    return bytes([number, 255 - number]) * 2500


def filled(path: Path) -> None:
    file = PageFile.open(path, SHAPE)
    file.erase([], NOW)
    for number in (1, 2, 3):
        file.write(page(number, place=number - 1), contents(number))
    file.close()


def test_pages_are_found_again_as_they_were(tmp_path: Path) -> None:
    filled(tmp_path / "pages")
    file = PageFile.open(tmp_path / "pages", SHAPE)
    assert file.moment == NOW
    found = file.pages()
    assert [(p.digest, p.parent, p.token_ids, p.tags, p.place) for p in found] == [
        (p.digest, p.parent, p.token_ids, p.tags, p.place)
        for p in (page(1, place=0), page(2, place=1), page(3, place=2))
    ]
    assert [file.read(p) for p in found] == [contents(n) for n in (1, 2, 3)]
    assert stat.S_IMODE((tmp_path / "pages").stat().st_mode) == 0o600
    file.close()
    file.close()


def test_one_engine_at_a_time_has_the_file(tmp_path: Path) -> None:
    file = PageFile.open(tmp_path / "pages", SHAPE)
    with pytest.raises(FileBusy):
        PageFile.open(tmp_path / "pages", SHAPE)
    file.close()
    PageFile.open(tmp_path / "pages", SHAPE).close()


def test_a_flipped_bit_anywhere_is_a_page_less_and_never_a_wrong_one(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    filled(path)
    whole = path.read_bytes()
    slot_bytes = (len(whole) - 4096) // 3
    for offset in (0, 5, 60, 200, 8192, 8192 + 2500, 8192 + 4999):
        at = 4096 + slot_bytes + offset
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        file = PageFile.open(path, SHAPE)
        read = {p.place: file.read(p) for p in file.pages()}
        assert (read[0], read.get(1), read[2]) == (contents(1), None, contents(3))
        file.close()


@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 5000, 4096 + 8192 + 100, 40_000])
def test_a_torn_file_gives_what_is_whole(tmp_path: Path, length: int) -> None:
    path = tmp_path / "pages"
    filled(path)
    os.truncate(path, length)
    file = PageFile.open(path, SHAPE)
    for found in file.pages():
        assert file.read(found) == contents(found.place + 1)
    file.write(page(9, place=0), contents(9))
    assert file.read(page(9, place=0)) == contents(9)
    file.close()


def test_a_damaged_header_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    filled(path)
    data = path.read_bytes()
    path.write_bytes(data[:20] + b"\xff" + data[21:])
    file = PageFile.open(path, SHAPE)
    assert (file.pages(), file.moment) == ([], None)
    file.close()


@pytest.mark.parametrize(
    "shape",
    [
        Shape(fingerprint="cd" * 32, page_bytes=5000, page_tokens=2),
        Shape(fingerprint="ab" * 32, page_bytes=4999, page_tokens=2),
        Shape(fingerprint="ab" * 32, page_bytes=5000, page_tokens=4),
    ],
)
def test_pages_of_another_model_or_mode_are_erased(tmp_path: Path, shape: Shape) -> None:
    filled(tmp_path / "pages")
    file = PageFile.open(tmp_path / "pages", shape)
    assert file.pages() == []
    assert contents(1) not in (tmp_path / "pages").read_bytes()
    file.close()


def test_a_file_that_is_none_of_ours_is_moved_aside_and_kept(tmp_path: Path) -> None:
    (tmp_path / "pages").write_bytes(b"somebody's thesis")
    file = PageFile.open(tmp_path / "pages", SHAPE)
    assert file.pages() == []
    assert (tmp_path / "pages.aside").read_bytes() == b"somebody's thesis"
    file.close()


def test_what_is_erased_is_not_on_the_disk_any_more(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    filled(path)
    file = PageFile.open(path, SHAPE)
    later = Moment(generation="g", sequence=4)
    file.erase([1], later)
    file.close()
    data = path.read_bytes()
    assert (contents(1) in data, contents(2) in data) == (True, False)
    file = PageFile.open(path, SHAPE)
    assert (len(file.pages()), file.read(page(2, place=1)), file.moment) == (2, None, later)
    file.close()


def test_new_tags_take_the_place_of_old_ones_and_too_many_become_any(tmp_path: Path) -> None:
    filled(tmp_path / "pages")
    file = PageFile.open(tmp_path / "pages", SHAPE)
    file.retag(page(1, place=0, tags=frozenset({"t", "u"})))
    file.retag(page(2, place=1, tags=frozenset(f"{n:0200}" for n in range(100))))
    assert [found.tags for found in file.pages()] == [{"t", "u"}, None, {"t"}]
    assert file.read(page(1, place=0)) == contents(1)
    file.close()


def test_another_page_at_the_same_place_is_not_what_was_asked_for(tmp_path: Path) -> None:
    filled(tmp_path / "pages")
    file = PageFile.open(tmp_path / "pages", SHAPE)
    assert file.read(page(1, place=1)) is None
    file.retag(page(1, place=1, tags=None))
    assert [found.digest[0] for found in file.pages()] == [1, 2, 3]
    file.close()


def test_a_file_that_cannot_be_begun_is_free_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", _no_space)
        with pytest.raises(OSError, match="No space"):
            PageFile.open(tmp_path / "pages", SHAPE)
    PageFile.open(tmp_path / "pages", SHAPE).close()


def _no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
