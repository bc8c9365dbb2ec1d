"""Opening the store that a config names."""

from pathlib import Path

from index.memory import MemoryStore
from index.sqlite import SqliteStore
from index.store import Store
from proxy.settings import config as written


async def open_store(config: written.Store) -> Store:
    """The store of a config. Raises StoreUnusable."""
    if config.redis:
        # Imported where it is needed: its client is an extra.
        from index.redis import RedisStore

        return await RedisStore.open(
            config.redis,
            memory_bytes=config.memory,
            max_bytes=config.disk,
            filter_bytes=config.filter,
            num_replicas=config.replicas,
            deadline_s=config.deadline,
            vectors=config.vectors == "auto",
        )
    if config.path is None:
        return MemoryStore(max_bytes=config.memory)
    path = Path(config.path)
    return await SqliteStore.open(path, memory_bytes=config.memory, disk_bytes=config.disk)
