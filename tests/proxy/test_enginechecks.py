"""What the pages of an engine need of the rest of the config."""

import pytest

from proxy.settings.config import Config, Store
from proxy.settings.engine import DiskPages, Engine, KVCache
from proxy.settings.enginechecks import check_pages
from proxy.settings.upstreams import Upstream


def _findings(*engines: Engine, store: Store | None = None, can_keep: bool = True) -> list[str]:
    upstreams = {f"u{n}": Upstream(engine=engine) for n, engine in enumerate(engines)}
    config = Config(upstreams=upstreams, store=store or Store(path="s"), routes=())
    found = [
        finding
        for name in upstreams
        for finding in check_pages(config, name, (name,), can_keep=lambda _: can_keep)
    ]
    return [f"{'/'.join(map(str, one.path))}: {one.message}" for one in found]


def _on_disk(path: str) -> Engine:
    return Engine(model="m", kv_cache=KVCache(disk=DiskPages(path=path)))


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda"])
def test_pages_with_groups_of_channels_are_refused_on_a_gpu_and_only_there(device: str) -> None:
    found = _findings(Engine(model="m", device=device, kv_cache=KVCache(dtype="int8-hq")))
    assert len(found) == (device == "cuda")
    assert all(one.startswith("u0/kv_cache/dtype: `int8-hq` is for CPUs") for one in found)
    assert _findings(Engine(model="m", device=device)) == []


def test_pages_on_disk_need_a_store_that_lasts_and_a_file_of_their_own() -> None:
    assert _findings(_on_disk("a"), _on_disk("b")) == []
    (memory,) = _findings(_on_disk("a"), store=Store())
    assert "forgets what was purged" in memory
    (shared,) = _findings(_on_disk("a"), _on_disk("a"))
    assert shared.startswith("u1/kv_cache/disk/path: the engine of 'u0' uses this file")
    (unwritable,) = _findings(_on_disk("a"), can_keep=False)
    assert "cannot be written here: 'a'" in unwritable
