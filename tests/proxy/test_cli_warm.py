"""`rejoinder warm` with the request log of a proxy, sent to a proxy."""

import asyncio
import json

import pytest
from commandline import run_command
from misbehaving import serving
from running import good, running

from proxy.commands.warming import PassedOver, Problem, Wish, wishes

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
tenants: {{keys: {{sk-one: acme, sk-two: zenith}}}}
policies:
  standard: {{ttl: 1h, share: tenant}}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: standard, retries: 0}}
record: {{path: "{log}", bodies: true}}
"""
SPACED = json.dumps(
    {
        "model": "test-1",
        "messages": [{"role": "user", "content": "Why, with blanks?"}],
        "cache": {"tags": ["doc:1"], "namespace": "n", "ttl": "10m"},
    },
    indent=1,
)


async def warm(p, *arguments):
    whom = ("--url", f"{p.url}/v1", "--admin", p.admin_url, "--json")
    done = await asyncio.to_thread(run_command, "warm", *arguments, *whom, environ={})
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


async def flushed(p):
    await p.proxy.records.journal.flush()


@pytest.fixture
async def log(tmp_path):
    """Of two tenants: one request with blanks in its JSON, one that wants nothing stored, one that
    is wrong, one of the other."""
    path = tmp_path / "requests.jsonl"
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, log=path), tmp_path) as p,
    ):
        headers = {"authorization": "Bearer sk-one", "content-type": "application/json"}
        url = f"{p.url}/v1/chat/completions"
        await p.http.post(url, content=SPACED, headers={**headers, "x-team": "search"})
        await p.ask("Not to be stored", cache={"no-store": True})
        await p.ask("Wrong", temperature="hot")
        await p.ask("Another's", key="sk-two")
        await flushed(p)
    return path


async def test_a_log_is_asked_again_as_it_was_asked(log, tmp_path):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, log=tmp_path / "new"), tmp_path) as p,
    ):
        code, summary, err = await warm(p, log, "--tenant", "acme", "--api-key", "sk-one")
        again = await p.http.post(
            f"{p.url}/v1/chat/completions",
            content=SPACED,
            headers={"authorization": "Bearer sk-one", "x-team": "search"},
        )
        purged = await p.purge(tags=["doc:1"])
        entries = (await p.http.get(f"{p.admin_url}/cache/entries")).json()["entries"]
    assert (code, err) == (0, "")
    assert (summary["misses"], summary["passed_over"], summary["failed"]) == (1, 3, 0)
    assert again.headers["x-cache"] == "exact"
    assert purged["matched"] == 1
    assert entries == []
    assert [json.loads(one.body)["messages"][0]["content"] for one in upstream.requests] == [
        "Why, with blanks?"
    ]


async def test_a_log_of_several_tenants_is_not_asked_with_one_key(log, tmp_path):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, log=tmp_path / "new"), tmp_path) as p,
    ):
        code, summary, err = await warm(p, log, "--api-key", "sk-one")
    assert (code, summary) == (2, None)
    assert "--tenant" in err
    assert "acme, zenith" in err
    assert upstream.requests == []


def test_each_line_of_a_log_is_a_wish_or_says_why_not(log):
    found = list(wishes(log))
    assert [type(one) for one in found] == [Wish, PassedOver, PassedOver, Wish]
    wish = found[0]
    assert json.loads(bytes(wish.request))["cache"] == {
        "ttl": 600.0, "namespace": "n", "tags": ["doc:1"]
    }  # fmt: skip
    assert wish.headers.keys() & {"content-length", "host", "x-request-id", "connection"} == set()
    assert wish.headers["x-team"] == "search"


def test_a_line_whose_words_were_not_kept_is_passed_over(tmp_path):
    path = tmp_path / "log"
    line = {"v": 1, "at": 0, "request_id": "a", "surface": "chat", "outcome": "miss",
            "ended": "whole", "total_ms": 1}  # fmt: skip
    path.write_text(json.dumps(line) + "\n" + json.dumps({**line, "v": 99}))
    kept, newer = wishes(path)
    assert isinstance(kept, PassedOver)
    assert isinstance(newer, Problem)
