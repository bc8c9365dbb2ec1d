"""The config of the bundled engine, in the engine's terms."""

import msgspec

from engine.config import EngineConfig
from engine.longcontext import LongContext
from proxy.settings.engine import Engine


def engine_config(engine: Engine) -> EngineConfig:
    return EngineConfig(
        model=engine.model,
        device=engine.device,
        weights=engine.weights,
        kv_dtype=engine.kv_cache.dtype,
        page_tokens=engine.kv_cache.page_tokens,
        kv_memory_bytes=int(engine.kv_cache.memory),
        kv_prefix=engine.kv_cache.prefix,
        kv_pin=engine.kv_cache.pin,
        kv_swap_bytes=int(engine.kv_cache.swap),
        kv_disk=None if engine.kv_cache.disk is None else engine.kv_cache.disk.path,
        kv_disk_bytes=0 if engine.kv_cache.disk is None else int(engine.kv_cache.disk.max),
        max_context=engine.max_context,
        long_context=msgspec.convert(engine.long_context, LongContext, from_attributes=True),
        max_batch=engine.max_batch,
        threads=engine.threads,
    )
