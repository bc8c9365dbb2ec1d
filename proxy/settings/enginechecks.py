"""Checks of the bundled engine's config: what its pages need of the rest of it. Pure."""

from collections.abc import Callable, Iterator

from proxy.settings.config import Config
from proxy.settings.finding import Finding
from proxy.settings.tree import Path


def check_pages(
    config: Config, name: str, path: Path, *, can_keep: Callable[[str], bool]
) -> Iterator[Finding]:
    """The KV cache of the engine at upstream `name`; `path` is the engine's own."""
    engine = config.upstreams[name].engine
    if engine is None:
        return
    if engine.device == "cuda" and engine.kv_cache.dtype == "int8-hq":
        message = "`int8-hq` is for CPUs: with `device: cuda` choose `int8` or `bf16`"
        yield Finding(path=(*path, "kv_cache", "dtype"), message=message)
    disk = engine.kv_cache.disk
    if disk is None:
        return
    place: Path = (*path, "kv_cache", "disk")
    if config.store.path is None and not config.store.redis:
        message = "needs `store.path` or `store.redis`: a store in memory forgets what was purged"
        yield Finding(path=place, message=message)
    if not can_keep(disk.path):
        message = f"cannot be written here: {disk.path!r}"
        yield Finding(path=(*place, "path"), message=message, file=disk.path)
    others = [
        other
        for other, upstream in config.upstreams.items()
        if other < name
        and upstream.engine is not None
        and upstream.engine.kv_cache.disk is not None
        and upstream.engine.kv_cache.disk.path == disk.path
    ]
    if others:
        message = f"the engine of {others[0]!r} uses this file: one at a time can"
        yield Finding(path=(*place, "path"), message=message)
