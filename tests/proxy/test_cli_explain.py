"""`rejoinder explain` and `rejoinder erase`, against a proxy that serves."""

import asyncio
import json

import pytest
from commandline import run_command
from misbehaving import serving
from running import good, running

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
prices: {{"test-*": {{input: 2.0, output: 10.0}}}}
tenants: {{keys: {{sk-one: acme, sk-two: zenith}}}}
policies:
  standard: {{ttl: 1h, share: tenant}}
  own: {{ttl: 1h}}
record: {{path: "{folder}/requests.jsonl", bodies: true}}
routes:
  - {{match: {{model: "test-own"}}, to: main, cache: own}}
  - {{match: {{model: "test-*"}}, to: main, cache: standard}}
"""


@pytest.fixture
async def p(tmp_path):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, folder=tmp_path), tmp_path) as proxy,
    ):
        yield proxy


@pytest.fixture
def rejoinder(p):
    async def run(*arguments):
        done = await asyncio.to_thread(run_command, *arguments, "--admin", p.admin_url, environ={})
        return done.returncode, done.stdout, done.stderr

    return run


def written(folder, name, **changes):
    body = {"model": "test-1", "messages": [{"role": "user", "content": "Why?"}], **changes}
    (folder / name).write_text(json.dumps(body))
    return str(folder / name)


async def test_a_tenants_name_alone_does_not_say_whose_answers_are_shared(p, rejoinder, tmp_path):
    await p.ask("Why?", model="test-own")
    file = written(tmp_path, "own.json", model="test-own")
    code, _, err = await rejoinder("explain", file, "--tenant", "acme")
    assert code == 2
    assert "shared by credential" in err
    code, out, _ = await rejoinder("explain", file, "--api-key", "sk-one")
    assert (code, out.splitlines()[0][:5]) == (0, "exact")


async def test_a_line_of_the_request_log_is_explained_as_it_was_asked(p, rejoinder, tmp_path):
    await p.ask("Why?", model="test-own", cache={"namespace": "n", "tags": ["doc:1"]})
    await p.proxy.records.journal.flush()
    file = tmp_path / "line.json"
    file.write_text((tmp_path / "requests.jsonl").read_text())
    code, out, err = await rejoinder("explain", file, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["outcome"] == "exact"
    assert told["tags"] == ["doc:1"]


async def test_a_file_is_explained_in_lines_that_begin_with_the_answer(p, rejoinder, tmp_path):
    file = written(tmp_path, "a.json", user="somebody")
    code, out, _ = await rejoinder("explain", file, "--tenant", "acme")
    assert code == 0
    assert out.startswith("miss: absent: nothing is stored under this key\n")
    assert "left out   user: names who asks" in out
    await p.ask("Why?")
    _, out, _ = await rejoinder("explain", file, "--api-key", "sk-one")
    assert out.startswith("exact: ")
    assert "cost       5+3 tokens, 0.00004 USD (as the stored answer took)" in out


async def test_an_id_is_explained_with_what_became_of_it(p, rejoinder):
    answer = await p.ask("Why?")
    request_id = answer.headers["x-request-id"]
    code, out, _ = await rejoinder("explain", request_id)
    assert code == 0
    assert "when it came: miss (absent), status 200" in out
    code, out, _ = await rejoinder("explain", request_id, "--json")
    assert json.loads(out)["request_id"] == request_id
    assert (await rejoinder("explain", request_id, "--api-key", "sk-one"))[0] == 0
    code, out, err = await rejoinder("explain", request_id, "--api-key", "sk-two")
    assert (code, out) == (1, "")
    assert f"The request {request_id} did not come with this key." in err
    code, _, err = await rejoinder("explain", "req_unknown")
    assert code == 1
    assert "req_unknown" in err


async def test_a_purge_is_said_to_be_before_or_after_the_answer(p, rejoinder, tmp_path):
    file = written(tmp_path, "a.json")
    tagged = {"headers": {"x-cache-tags": "doc:1"}}
    await p.ask("Why?", **tagged)
    await p.purge(tags=["doc:1"], soft=True)  # the others leave nothing behind in memory
    _, out, _ = await rejoinder("explain", file, "--tenant", "acme")
    assert "doc:1 was softly purged by purge 1, after this answer's request came" in out
    await p.ask("Why?", **tagged)
    _, out, _ = await rejoinder("explain", file, "--tenant", "acme")
    assert "; it has seen 1 purge of 1\n" in out
    assert "doc:1 was softly purged by purge 1, before this answer's request came" in out


async def test_two_files_are_compared(rejoinder, tmp_path):
    files = [written(tmp_path, "a.json"), written(tmp_path, "b.json", temperature=0.5)]
    code, out, _ = await rejoinder("explain", *files, "--tenant", "acme")
    assert code == 0
    assert out.startswith("no answer in common: ")
    assert "differs    temperature: (absent) | 0.5" in out


@pytest.mark.parametrize("name", ["missing.json", "broken.json"])
async def test_a_file_that_is_no_request_is_said_to_be_none(rejoinder, tmp_path, name):
    (tmp_path / "broken.json").write_text("{")
    code, _, err = await rejoinder("explain", str(tmp_path / name))
    assert code == 2
    assert name in err


async def test_erasing_says_what_is_gone(p, rejoinder):
    await p.ask("Why?")
    code, out, _ = await rejoinder("erase", "--tenant", "acme")
    assert code == 0
    assert out.startswith("erased 1 answer, 1 log line, 0 KV pages; 1 request in memory")
    code, _, err = await rejoinder("erase")
    assert code == 2
    assert "--tenant" in err
