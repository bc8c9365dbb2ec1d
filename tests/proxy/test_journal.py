"""The request log, its files, and erasing one's data from everything that is kept."""

import asyncio
import errno
import json
import signal
from types import SimpleNamespace

import httpx
import pytest
from misbehaving import serving
from proxyprocess import serving_process
from running import good, running

from proxy.journal.files import Files
from proxy.journal.line import read_line

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
store: {{path: "{folder}/store.db"}}
tenants: {{keys: {{sk-secret-one: acme, sk-secret-two: zenith}}}}
policies:
  standard: {{ttl: 1h, share: tenant, tags: [{{pattern: 'doc_id=(\\w+)', tag: 'doc:\\1'}}]}}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: standard, retries: 0}}
shutdown: {{grace: 0s}}
{more}
"""
RECORD = 'record: {{path: "{folder}/requests.jsonl", bodies: {bodies}}}'


def config(upstream, folder, *, bodies="true", more=""):
    record = RECORD.format(folder=folder, bodies=bodies)
    return CONFIG.format(upstream=upstream.url, folder=folder, more=f"{record}\n{more}")


async def logged(p, folder):
    await p.proxy.records.journal.flush()
    return [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]


async def erase(p, **whose):
    answer = await p.http.post(f"{p.admin_url}/cache/erase", json=whose)
    assert answer.status_code == 200, answer.text
    return answer.json()


def raw_bytes(folder):
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


async def test_each_request_is_one_line_without_words_or_keys(tmp_path):
    async with (
        serving(good) as upstream,
        running(config(upstream, tmp_path, bodies="false"), tmp_path) as p,
    ):
        await p.ask("A very private question", key="sk-secret-one", user="u1")
        await p.ask("A very private question", key="sk-secret-one", stream=True)
        (tmp_path / "test.yaml").unlink()
        miss, exact = await logged(p, tmp_path)
        assert (miss["outcome"], exact["outcome"]) == ("miss", "exact")
        assert miss["v"] == 1
        assert miss["tenant"] == "acme"
        assert exact["matched"] == miss["key"]
        assert len(miss["subjects"]) == 1
        assert "lookup" in miss["phases_ms"]
        text = (tmp_path / "requests.jsonl").read_text()
        assert "private" not in text
        assert "sk-secret" not in text
        assert "u1" not in text


async def test_a_line_with_its_body_is_explained_after_the_memory_is_gone(tmp_path):
    async with serving(good) as upstream:
        text = config(upstream, tmp_path)
        async with running(text, tmp_path) as p:
            said = await p.ask("Why?", key="sk-secret-one", headers={"X-Team": "search"})
            (line,) = await logged(p, tmp_path)
            assert line["request"]["messages"][0]["content"] == "Why?"
            assert line["headers"]["x-team"] == "search"
            assert "sk-secret" not in json.dumps(line)
        async with running(text, tmp_path) as p:
            asked = {"request_id": said.headers["x-request-id"]}
            answer = await p.http.post(f"{p.admin_url}/cache/explain", json=asked)
            assert answer.status_code == 200, answer.text
            told = answer.json()
            assert (told["outcome"], told["seen"]["outcome"]) == ("exact", "miss")
            assert told["key"] == line["key"]
            asked["headers"] = {"authorization": "Bearer sk-secret-one"}
            answer = await p.http.post(f"{p.admin_url}/cache/explain", json=asked)
            assert answer.status_code == 200, answer.text


async def test_nothing_of_a_request_that_says_no_store_is_remembered(tmp_path):
    async with serving(good) as upstream, running(config(upstream, tmp_path), tmp_path) as p:
        said = await p.ask("Secret words", key="sk-secret-one", cache={"no-store": True})
        (line,) = await logged(p, tmp_path)
        asked = {"request_id": said.headers["x-request-id"]}
        explained = await p.http.post(f"{p.admin_url}/cache/explain", json=asked)
    assert line["reasons"] == ["no_store"]
    assert "Secret words" not in (tmp_path / "requests.jsonl").read_text()
    assert explained.status_code == 404


async def test_a_log_that_cannot_be_written_costs_no_request(tmp_path):
    async with serving(good) as upstream, running(config(upstream, tmp_path), tmp_path) as p:
        (tmp_path / "requests.jsonl").mkdir()
        assert (await p.ask("Why?", key="sk-secret-one")).status_code == 200
        await p.proxy.records.journal.flush()
        metrics = (await p.http.get(f"{p.admin_url}/metrics")).text
        assert "rejoinder_request_log_lost_total 1.0" in metrics


def test_a_full_file_becomes_the_older_one_and_the_oldest_goes(tmp_path):
    path = tmp_path / "log"
    files = Files(str(path), max_bytes=100)
    for number in range(3):
        path.write_bytes(b"%d" % number * 60 + b"\n")
        assert files.rotate()
        assert not files.rotate()
    path.write_bytes(b"new\n")
    assert list(files.lines()) == [b"2" * 60, b"new"]
    assert [line for line in files.lines_backwards() if line] == [b"new", b"2" * 60]


def test_lines_are_read_backwards_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("proxy.journal.backwards._BLOCK_BYTES", 7)
    path = tmp_path / "log"
    lines = [b"x" * number for number in range(1, 20)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    files = Files(str(path), max_bytes=10**6)
    assert [line for line in files.lines_backwards() if line] == lines[::-1]


def test_a_crash_while_lines_were_taken_out_loses_none(tmp_path):
    path = tmp_path / "log"
    (tmp_path / "log.erasing").write_bytes(b"a\nb\n")
    path.write_bytes(b"c\n")
    files = Files(str(path), max_bytes=10**6)
    assert list(files.lines()) == [b"a", b"b", b"c"]
    assert files.rewrite(lambda line: None if line == b"a" else line) == 1
    assert list(files.lines()) == [b"b", b"c"]


@pytest.mark.parametrize("text", [b"", b"{}", b'{"v": 2}', b"\xff", b"[" * 5000])
def test_what_is_no_line_of_ours_is_passed_over(text):
    assert read_line(text) is None


async def test_a_tenants_words_are_in_no_file_once_they_are_erased(tmp_path):
    async with serving(good) as upstream, running(config(upstream, tmp_path), tmp_path) as p:
        for number in range(3):
            await p.ask(f"Zebra secret {number}", key="sk-secret-one")
        await p.ask("Giraffe question", key="sk-secret-two")
        await logged(p, tmp_path)
        assert b"Zebra secret" in raw_bytes(tmp_path)
        gone = await erase(p, tenant="acme")
        assert (gone["entries"], gone["lines"], gone["requests"]) == (3, 3, 3)
        assert gone["scrubbed"]
        assert b"Zebra" not in raw_bytes(tmp_path)
        assert b"Giraffe" in raw_bytes(tmp_path)
        again = await p.ask("Zebra secret 1", key="sk-secret-one")
        assert again.headers["x-cache"] == "miss"
        kept = await p.ask("Giraffe question", key="sk-secret-two")
        assert kept.headers["x-cache"] == "exact"


async def test_one_users_answers_go_and_those_of_others_stay(tmp_path):
    async with serving(good) as upstream, running(config(upstream, tmp_path), tmp_path) as p:
        await p.ask("Zebra", key="sk-secret-one", user="ada@example.com")
        await p.ask("Okapi", key="sk-secret-one", metadata={"user_id": "ada@example.com"})
        await p.ask("Giraffe", key="sk-secret-one", safety_identifier="somebody else")
        gone = await erase(p, user="ada@example.com")
        assert (gone["entries"], gone["lines"], gone["requests"]) == (2, 2, 2)
        left = raw_bytes(tmp_path)
        assert b"Zebra" not in left
        assert b"Okapi" not in left
        assert b"ada@example.com" not in left
        assert b"Giraffe" in left


async def test_lines_of_all_workers_are_in_one_file_and_erased_together(tmp_path):
    async with asyncio.timeout(120), serving(good) as upstream:
        text = config(upstream, tmp_path, more="workers: 2")
        async with serving_process(text, tmp_path) as process:
            for number in range(8):
                async with httpx.AsyncClient(timeout=60) as http:  # any worker may take it
                    body = {
                        "model": "test-1",
                        "messages": [{"role": "user", "content": f"Zebra {number}"}],
                    }
                    headers = {"authorization": "Bearer sk-secret-one"}
                    url = f"{process.url}/v1/chat/completions"
                    answer = await http.post(url, json=body, headers=headers)
                    assert answer.status_code == 200, answer.text
            gone = await erase(process, tenant="acme")
            assert (gone["entries"], gone["lines"]) == (8, 8)
            assert b"Zebra" not in raw_bytes(tmp_path)


async def test_an_erasure_leaves_nothing_in_what_makes_hits_quicker_and_is_counted(tmp_path):
    async with serving(good) as upstream, running(config(upstream, tmp_path), tmp_path) as p:
        for stream in (True, False):  # the second is put into another form, and that is remembered
            await p.ask("Zebra", key="sk-secret-one", stream=stream)
        before = p.proxy._site
        assert before.replays.held_bytes
        assert before.intake._known
        with before.guests:  # as by a stream that goes on while the config changes
            await p.proxy.adopt(p.proxy.config)
            await erase(p, tenant="acme")
        assert before.replays.held_bytes == 0
        assert not before.replays._made
        assert not before.intake._known
        metrics = (await p.http.get(f"{p.admin_url}/metrics")).text
        assert 'rejoinder_purges_total{kind="hard"} 1.0' in metrics


@pytest.mark.parametrize("body", [{}, {"tenant": "a", "user": "b"}, {"who": "a"}])
async def test_an_erasure_of_nobody_or_of_two_is_refused(tmp_path, body):
    async with serving(good) as upstream, running(config(upstream, tmp_path), tmp_path) as p:
        assert (await p.http.post(f"{p.admin_url}/cache/erase", json=body)).status_code == 400


async def test_what_is_done_on_the_admin_port_is_written_down(tmp_path):
    async with serving(good) as upstream:
        text = config(upstream, tmp_path)
        async with running(text, tmp_path) as p:
            await p.purge(tags=["doc:1"])
            await p.purge(tags=["doc:1"], dry_run=True)
            wrong = {"request_id": "nobody", "verdict": "wrong"}
            await p.http.post(f"{p.admin_url}/cache/feedback", json=wrong)
            await p.http.delete(f"{p.admin_url}/cache/entries/{'0' * 64}")
            await erase(p, user="ada@example.com")
            await p.http.post(f"{p.admin_url}/reload")
        async with running(text, tmp_path) as p:
            deeds = (await p.http.get(f"{p.admin_url}/audit")).json()["deeds"]
            assert [(deed["what"], deed["ok"]) for deed in deeds] == [
                ("reload", False), ("erase", True), ("purge", True), ("feedback", False),
                ("purge", True),
            ]  # fmt: skip
            assert deeds[-1]["asked"]["tags"] == ["doc:1"]
            assert deeds[-1]["result"]["sequence"] == 1
            assert deeds[-1]["who"] == "127.0.0.1"
            erased = (await p.http.get(f"{p.admin_url}/audit?what=erase")).json()["deeds"]
            assert len(erased) == 1
            older = await p.http.get(f"{p.admin_url}/audit?before={erased[0]['at']}&limit=1")
            assert older.json()["deeds"] == [deeds[2]]
            assert "ada@" not in (tmp_path / "store.db.audit.jsonl").read_text()


async def test_a_reload_that_a_signal_asked_for_is_written_down_too(tmp_path):
    async with (
        asyncio.timeout(120),
        serving(good) as upstream,
        serving_process(config(upstream, tmp_path), tmp_path) as process,
    ):
        process.process.send_signal(signal.SIGHUP)
        audit = f"{process.admin_url}/audit"
        while not (deeds := (await process.http.get(audit)).json()["deeds"]):
            await asyncio.sleep(0.05)
        assert [(deed["what"], deed["who"], deed["ok"]) for deed in deeds] == [
            ("reload", "SIGHUP", True)
        ]


async def test_an_erasure_that_the_disk_has_no_room_for_is_told_and_can_be_asked_again(
    tmp_path, monkeypatch
):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = tmp_path / "var"  # as the documents have it: nobody has made it
    text = config(SimpleNamespace(url="http://127.0.0.1:9"), folder)
    async with running(text, tmp_path) as p:
        await p.ask("Zebra", key="sk-secret-one")
        await logged(p, folder)
        with monkeypatch.context() as patch:
            patch.setattr("proxy.journal.files._write", full)
            patch.setattr("proxy.journal.files.os.pwrite", full)
            answer = await p.http.post(f"{p.admin_url}/cache/erase", json={"tenant": "acme"})
        assert answer.status_code == 503
        assert answer.json()["error"]["type"] == "server_error"
        assert (await erase(p, tenant="acme"))["lines"] == 1
        assert b"Zebra" not in raw_bytes(folder)
