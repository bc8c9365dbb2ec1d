"""The access log of a proxy on real sockets."""

import asyncio
import json

from misbehaving import plain, serving
from running import CONFIG, good, running

SECRET = "sk-very-secret"
WORDS = "What nobody may read in a log?"


def config(upstream, path, *, more="") -> str:
    return f"access_log: {path}\n" + CONFIG.format(upstream=upstream.url, options="", policy=more)


def read(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_line_tells_of_each_request_and_neither_words_nor_keys(tmp_path):
    path = tmp_path / "access.log"

    async def answer(request, writer):
        if request.line.startswith("GET "):
            writer.write(plain(b"{}"))
        else:
            await good(request, writer)

    async with (
        serving(answer) as upstream,
        running(config(upstream, path), tmp_path) as p,
    ):
        miss = await p.ask(WORDS, key=SECRET)
        hit = await p.ask(WORDS, key=SECRET)
        streamed = await p.ask(WORDS, key=SECRET, stream=True)
        await p.http.get(f"{p.url}/v1/files?key={SECRET}", headers={"authorization": SECRET})
        await p.http.post(f"{p.url}/v1/chat/completions", content=b"{")
    lines = read(path)
    assert [one["outcome"] for one in lines] == ["miss", "exact", "exact", "", "bypass"]
    assert [one["status"] for one in lines] == [200, 200, 200, 200, 400]
    first, second, third, other, refused = lines
    assert first["request_id"] == miss.headers["x-request-id"]
    assert (first["upstream"], first["attempts"]) == ("main", 1)
    assert (first["input_tokens"], first["output_tokens"]) == (5, 3)
    assert (first["model"], first["policy"], first["route"]) == ("test-1", "standard", "routes[1]")
    assert first["phases_ms"].keys() == {"receive", "lookup", "upstream"}
    assert first["reasons"] == ["absent"]
    assert second["bytes"] == len(hit.content)
    assert (second["attempts"], second["stream"]) == (0, False)
    assert (third["bytes"], third["stream"]) == (len(streamed.content), True)
    assert (other["method"], other["path"]) == ("GET", "/v1/files")
    assert other["tenant"] == refused["tenant"] or refused["tenant"] == ""
    assert all(one["total_ms"] >= one["first_ms"] > 0 for one in lines)
    assert all(one["time"].endswith("Z") for one in lines)
    text = path.read_text()
    assert SECRET not in text
    assert WORDS not in text


async def test_a_log_that_was_moved_away_is_begun_anew(tmp_path):
    path = tmp_path / "access.log"
    async with (
        serving(good) as upstream,
        running(config(upstream, path), tmp_path) as p,
    ):
        await p.ask("one")
        while not path.exists():
            await asyncio.sleep(0.01)
        path.rename(tmp_path / "access.log.1")
        await p.ask("two")
    assert (len(read(tmp_path / "access.log.1")), len(read(path))) == (1, 1)


async def test_a_log_that_cannot_be_written_costs_lines_and_no_answers(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    async with (
        serving(good) as upstream,
        running(config(upstream, folder / "access.log"), tmp_path) as p,
    ):
        folder.rename(tmp_path / "elsewhere")
        folder.touch()  # a file where a folder should be
        assert (await p.ask()).status_code == 200
        lost = "rejoinder_access_log_lost_total 1.0"
        while lost not in (await p.http.get(f"{p.admin_url}/metrics")).text:
            await asyncio.sleep(0.01)
