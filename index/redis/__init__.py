"""The store in Redis, shared by several proxies, with a memory tier in front."""

from index.redis.store import RedisStore

__all__ = ["RedisStore"]
