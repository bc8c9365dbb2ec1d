"""Erasing from the log and the memory, at its edges: what is torn, moved, under way, or full."""

import errno

import msgspec
import pytest

from proxy.call import Surface
from proxy.journal import files as log_files
from proxy.journal.erasure import Erasure, without_words
from proxy.journal.files import Files
from proxy.journal.journal import Journal
from proxy.journal.line import Line, erased, read_line
from proxy.journal.masking import masked
from proxy.journal.records import Records
from proxy.observing.lines import Lines
from proxy.observing.timing import Timing
from proxy.outcome import Near
from proxy.port.passage import Passage
from proxy.settings.config import Config
from proxy.settings.record import LEAST_BYTES, Record
from proxy.settings.units import Bytes


def passage(request_id: str, *, tenant: str = "acme", at: float = 1.0) -> Passage:
    return Passage(
        request_id=request_id, arrived_at=at, surface=Surface.CHAT, timing=Timing(), tenant=tenant
    )


def line(*, tenant: str = "acme", key: str = "", near: tuple[Near, ...] = ()) -> Line:
    return Line(
        v=1, at=1.0, request_id="r", surface="chat", outcome="miss", ended="whole", total_ms=1.0,
        tenant=tenant, key=key, near=near,
    )  # fmt: skip


def lost(_number: int) -> None:
    raise AssertionError("a line was lost")


def record(path, **more) -> Record:
    return Record(path=str(path), **more)


def records(config: Config) -> Records:
    return Records(config, lost=lost, drop=lambda: None)


def config(path=None) -> Config:
    return Config(upstreams={}, routes=(), record=None if path is None else record(path))


def near(key: str, prompt: str) -> Near:
    return Near(key=key, prompt=prompt, similarity=0.9, reason="numbers")


async def test_a_log_in_a_folder_that_is_not_there_makes_it(tmp_path):
    lines = Lines(str(tmp_path / "a" / "log"), lost=lost)
    lines.append(b"one\n")
    await lines.flush()
    assert (tmp_path / "a" / "log").read_bytes() == b"one\n"
    assert Files(str(tmp_path / "b" / "log"), max_bytes=10).rewrite(erase_all) == 0


def erase_all(_text: bytes) -> None:
    return None


async def test_a_line_after_half_a_line_begins_anew_and_the_half_goes_with_an_erasure(tmp_path):
    path = tmp_path / "log"
    whole = msgspec.json.encode(line(tenant="other"))
    path.write_bytes(whole[:40])
    lines = Lines(str(path), lost=lost)
    lines.append(whole + b"\n")
    await lines.flush()
    assert path.read_bytes() == whole[:40] + b"\n" + whole + b"\n"
    await Journal(record(path), lost=lost).erase(Erasure(tenant="acme"))
    assert list(Files(str(path), max_bytes=10**6).lines()) == [whole]


def test_the_last_line_of_an_older_file_is_not_glued_to_the_next(tmp_path):
    (tmp_path / "log.1").write_bytes(b"a")
    (tmp_path / "log").write_bytes(b"b\n")
    files = Files(str(tmp_path / "log"), max_bytes=10**6)
    files.rewrite(lambda text: text)
    assert list(files.lines()) == [b"a", b"b"]


def test_an_erased_question_stays_beside_nobody_elses_request():
    other = line(tenant="other", near=(near("k1", "Zebra"), near("k2", "Okapi")))
    left = erased(msgspec.json.encode(other), Erasure(tenant="acme", keys=frozenset({"k1"})))
    assert left is not None
    told = read_line(left)
    assert told is not None
    assert [one.prompt for one in told.near] == ["", "Okapi"]
    assert without_words(other, {"k3"}) is other


async def test_keys_of_erased_requests_are_found_in_the_log(tmp_path):
    path = tmp_path / "log"
    lines = (line(key="k1"), line(tenant="other", key="k2"))
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in lines))
    assert await records(config(path)).keys(Erasure(tenant="acme")) == {"k1"}


async def test_what_was_under_way_during_an_erasure_is_not_noted_after_it(tmp_path):
    kept = records(config(tmp_path / "log"))
    await kept.forget(Erasure(tenant="acme", at=5.0))
    kept.note(passage("under way", at=4.0))
    kept.note(passage("another's", at=4.0, tenant="other"))
    kept.note(passage("later", at=6.0))
    await kept.close()
    assert [one.request_id for one in kept.recent.latest(9)] == ["later", "another's"]
    assert "under way" not in (tmp_path / "log").read_text()


async def test_an_erasure_covers_the_file_of_a_former_config(tmp_path):
    kept = records(config(tmp_path / "old"))
    kept.note(passage("r1"))
    await kept.adopt(config(tmp_path / "new"))
    kept.note(passage("r2"))
    await kept.adopt(config())
    assert await kept.erase(Erasure(tenant="acme")) == 2
    assert (tmp_path / "old.1").read_bytes() == (tmp_path / "new.1").read_bytes() == b""


def test_on_a_full_disk_lines_are_blanked_where_they_stand(tmp_path, monkeypatch):
    def full(_descriptor, _data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(log_files, "_write", full)
    (tmp_path / "log.1").write_bytes(b"secret\nother\n")
    (tmp_path / "log").write_bytes(b"secret 2\nmine\n")
    files = Files(str(tmp_path / "log"), max_bytes=10**6)
    assert files.rewrite(lambda text: None if text.startswith(b"secret") else text) == 2
    assert [text for text in files.lines() if text.strip()] == [b"other", b"mine"]
    assert not (tmp_path / "log.fresh").exists()


async def test_a_full_file_is_noticed_whoever_filled_it(tmp_path):
    path = tmp_path / "log"
    journal = Journal(record(path, max=Bytes(LEAST_BYTES)), lost=lost)
    path.write_bytes(b"x" * (LEAST_BYTES // 2) + b"\n")
    journal.note(passage("r1"))
    await journal.flush()
    assert not path.exists()
    assert (tmp_path / "log.1").exists()


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("", ""),
        ("api-version=2&api_key=sk-1&a", "api-version=2&api_key=***&a"),
        ("key=a%26b&X-Amz-Signature=1&sig=2", "key=***&X-Amz-Signature=***&sig=***"),
        ("access%5Ftoken=1&api%2Dkey=2", "access%5Ftoken=***&api%2Dkey=***"),
    ],
)
def test_keys_in_a_query_are_not_written_down(query, told):
    assert masked(query) == told


async def test_a_request_is_forgotten_while_others_are_noted(tmp_path):
    kept = records(config())
    kept.note(passage("r1"))
    kept.note(passage("r2", tenant="other"))
    assert await kept.forget(Erasure(tenant="acme", at=2.0)) == 1
    assert [one.request_id for one in kept.recent.latest(9)] == ["r2"]
