"""Other weights under the same name never answer with what the old ones said."""

from pathlib import Path

import pytest
from running import running

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
store: {{path: "{folder}/store.db"}}
upstreams:
  local: {{engine: {{model: "{folder}/tiny.gguf", max_context: 256, threads: 1}}}}
policies:
  standard: {{ttl: 1h, stale_if_error: 24h, stale_while_revalidate: 24h}}
routes:
  - {{match: {{model: "*"}}, to: local, cache: standard}}
"""


@pytest.fixture
def write_tiny(monkeypatch):
    """The writer of tiny models, which the engine's tests have."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "engine")
    from enginekit import write_tiny

    return write_tiny


async def asked_after_a_start(folder):
    async with running(CONFIG.format(folder=folder), folder) as proxy:
        answer = await proxy.ask(model="tiny", temperature=0, max_tokens=4)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-cache"], answer.json()["choices"][0]["message"]["content"]


async def test_other_weights_under_one_path_never_give_the_answers_of_the_old_ones(
    tmp_path, write_tiny
):
    write_tiny(tmp_path / "tiny.gguf", layers=2)
    made = await asked_after_a_start(tmp_path)
    (tmp_path / "tiny.gguf").rename(tmp_path / "old")
    write_tiny(tmp_path / "tiny.gguf", layers=1)
    other = await asked_after_a_start(tmp_path)
    (tmp_path / "old").rename(tmp_path / "tiny.gguf")
    back = await asked_after_a_start(tmp_path)
    assert [made[0], other[0], back[0]] == ["miss", "miss", "exact"]
    assert made[1] == back[1] != other[1]
