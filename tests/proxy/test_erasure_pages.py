"""An erasure from end to end where an engine keeps pages of prompts, in memory and on disk."""

import asyncio

from proxyprocess import serving_process
from tinymodel import write_tiny

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
store: {{path: "{folder}/store.db"}}
upstreams:
  local:
    engine:
      model: "{folder}/tiny.gguf"
      threads: 1
      max_context: 256
      kv_cache:
        memory: 8MiB
        page_tokens: 16
        disk: {{path: "{folder}/pages", max: 16MiB}}
tenants: {{keys: {{sk-one: acme, sk-two: zenith}}}}
policies:
  standard: {{ttl: 1h, share: tenant}}
routes:
  - {{to: local, cache: standard}}
shutdown: {{grace: 0s, deadline: 10s}}
"""
DEADLINE_S = 300
MODEL = "tiny"
BLOCK_BYTES = 256


async def ask(process, animal, *, key):
    text = " ".join(f"The {animal} number {n} is here." for n in range(7))
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 2}
    headers = {"authorization": f"Bearer {key}"}
    url = f"{process.url}/v1/chat/completions"
    answer = await process.http.post(url, json=body, headers=headers)
    assert answer.status_code == 200, answer.text


async def on_disk(process, path, *, least):
    """The blocks of the file, once so many pages are in it. Those of zeros are none."""
    stats = f"{process.admin_url}/cache/stats"
    while (await process.http.get(stats)).json()["engines"]["local"]["disk_pages"] < least:
        await asyncio.sleep(0.05)
    return blocks(path)


def blocks(path):
    whole = path.read_bytes()[4096:]  # behind the file's own header
    found = {whole[at : at + BLOCK_BYTES] for at in range(0, len(whole), BLOCK_BYTES)}
    return {one for one in found if any(one)}


async def test_pages_of_an_erased_tenant_are_overwritten_and_those_of_others_stay(tmp_path):
    pages = tmp_path / "pages"
    write_tiny(tmp_path / "tiny.gguf")
    async with (
        asyncio.timeout(DEADLINE_S),
        serving_process(CONFIG.format(folder=tmp_path), tmp_path) as process,
    ):
        await ask(process, "giraffe", key="sk-two")
        others = await on_disk(process, pages, least=4)
        await ask(process, "zebra", key="sk-one")
        both = await on_disk(process, pages, least=8)
        tenants = both - others
        assert len(tenants) > len(others) / 2
        erase = f"{process.admin_url}/cache/erase"
        gone = (await process.http.post(erase, json={"tenant": "acme"})).json()
        assert gone["pages"] >= 4
        assert gone["scrubbed"]
        left = blocks(pages)
        assert not left & tenants
        assert others <= left
        tree = (await process.http.get(f"{process.admin_url}/engine/prefix-tree")).json()
        assert "acme" not in str(tree)
        assert "zenith" in str(tree)
    assert not blocks(pages) & tenants
