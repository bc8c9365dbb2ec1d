"""Wires the rooms that look after pages: who holds which, what is kept, and what is moved where."""

import logging
import time
from pathlib import Path

import msgspec

from engine.config import EngineConfig
from engine.kv.archive import Archive, NoArchive, PageArchive
from engine.kv.blocks import PageAllocator
from engine.kv.disk import FileBusy, PageFile, Shape
from engine.kv.diskshelf import DiskShelf
from engine.kv.lateshelf import LateShelf
from engine.kv.moves import PageMover, SwapIn, SwapOut
from engine.kv.pool import PagePool
from engine.kv.prefix import NoPrefix, Prefix, PrefixCache
from engine.kv.shelf import NoShelf, Shelf
from engine.kv.swap import CostMeter, Costs, SwapSlots

log = logging.getLogger("engine.kv.paging")


class Paging(msgspec.Struct, frozen=True, kw_only=True):
    """All that an engine needs besides its model and the pool itself."""

    pages: PageAllocator
    prefix: Prefix
    archive: Archive
    slots: SwapSlots
    mover: PageMover
    meter: CostMeter


def make_paging(config: EngineConfig, pool: PagePool, *, fingerprint: bytes) -> Paging:
    """`fingerprint`: of the pool's layout (`engine.kv.fingerprint`); with `kv_disk` it has to cover
    the weights, too."""
    num_pages, page_bytes = pool.storage.shape
    num_slots = config.kv_swap_bytes // page_bytes
    pages = PageAllocator(num_pages)
    slots = SwapSlots(num_slots)
    mover = PageMover(pool.storage, num_slots=num_slots)
    page_copy_s = _copy_s(mover) if num_slots else 0.0
    meter = CostMeter(Costs(page_copy_s=page_copy_s, token_compute_s=0.0))
    if not config.kv_prefix:
        archive: Archive = NoArchive(page_tokens=config.page_tokens)
        prefix: Prefix = NoPrefix(pages)
    else:
        prefix = cache = PrefixCache(pages, page_tokens=config.page_tokens)
        archive = PageArchive(
            cache,
            pages,
            shelf=_shelf(config, pool, cache, pages, fingerprint),
            fingerprint=fingerprint,
            page_tokens=config.page_tokens,
        )
    return Paging(
        pages=pages, prefix=prefix, archive=archive, slots=slots, mover=mover, meter=meter
    )


def _copy_s(mover: PageMover) -> float:
    """Seconds for a page, one way; the memory is touched before."""
    mover.run([SwapOut(page=0, slot=0), SwapIn(slot=0, page=0)])
    started = time.perf_counter()
    mover.run([SwapOut(page=0, slot=0), SwapIn(slot=0, page=0)])
    return (time.perf_counter() - started) / 2


def _shelf(
    config: EngineConfig,
    pool: PagePool,
    cache: PrefixCache,
    pages: PageAllocator,
    fingerprint: bytes,
) -> Shelf:
    """Without the file the engine works all the same."""
    if config.kv_disk is None:
        return NoShelf()
    path = Path(config.kv_disk)
    shape = Shape(
        fingerprint=fingerprint.hex(),
        page_bytes=pool.layout.page_bytes,
        page_tokens=pool.layout.page_tokens,
    )

    def on_disk() -> DiskShelf:
        file = PageFile.open(path, shape)
        try:
            return DiskShelf(
                file,
                max_bytes=config.kv_disk_bytes,
                cache=cache,
                pages=pages,
                storage=pool.storage,
            )
        except OSError:
            file.close()
            raise

    try:
        return on_disk()
    except FileBusy as error:
        log.warning("no pages on disk until their file is free: %s", error)
        return LateShelf(on_disk)
    except OSError as error:
        log.error("no pages on disk: %s", error)
        return NoShelf()
