"""The admin port's handlers for what goes out of the store and comes into it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from litestar import Request, get, post
from litestar.di import NamedDependency
from litestar.params import FromQuery
from litestar.response import Stream

from index.entry import Entry, Snapshot
from index.store import Filter, Page, Store
from proxy.admin.parameters import tag_of
from proxy.transfer.importing import Importer
from proxy.transfer.line import MAX_LINE_BYTES, read_mark, write_entry, write_mark
from proxy.transfer.lines import lines_of
from proxy.transfer.pairs import Pair
from proxy.transfer.tally import Fate, Tally, refused

_PAGE = 50
"""Entries between two marks. They are in memory together."""
_LONGEST_MARK_BYTES = 4096


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """What the handlers work with."""

    store: Store
    clock: Callable[[], float]
    keep: Callable[[Pair, Snapshot], Awaitable[Fate]]
    """Of the config in force; see `proxy.transfer.pairs.Pairs.keep`."""


@get("/cache/export")
async def export_entries(
    transfer: NamedDependency[Transfer],
    tag: FromQuery[str | None] = None,
    model: FromQuery[str | None] = None,
    tenant: FromQuery[str | None] = None,
    cursor: FromQuery[str | None] = None,
    embeddings: FromQuery[bool] = True,
    readable: FromQuery[bool] = False,
) -> Stream:
    """Live entries that match all that is given, as JSON lines, newest first, with a mark after
    every page; the mark at the end has a null cursor. `embeddings=false` leaves the vectors out:
    such entries are found by the same words only. `cursor`: of a mark, to go on behind it."""
    where = Filter(tag=None if tag is None else tag_of(tag), model=model, tenant=tenant)

    async def scan(at: str | None) -> Page:
        return await transfer.store.scan(where, now=transfer.clock(), cursor=at, limit=_PAGE)

    async def lines(page: Page) -> AsyncIterator[bytes]:
        while True:
            for entry in page.entries:
                kept = entry if embeddings else _for_same_words(entry)
                yield write_entry(kept, secret=transfer.store.secret, readable=readable)
            yield write_mark(page.cursor)
            if page.cursor is None:
                return
            page = await scan(page.cursor)

    # The first page before the head, so that a store which fails is told as an error.
    first = await scan(cursor)
    return Stream(lines(first), media_type="application/jsonl")


@post("/cache/import", status_code=200, request_max_body_size=None)
async def import_entries(
    transfer: NamedDependency[Transfer],
    request: Request[Any, Any, Any],
    as_of_now: FromQuery[bool] = False,
) -> Tally:
    """Lines of an export. Each is checked by itself: refused ones do not keep others out."""
    store = transfer.store
    importer = Importer(store, start=await store.snapshot(), as_of_now=as_of_now)
    tally = Tally()
    number = 0
    async for line in lines_of(request.stream(), max_bytes=MAX_LINE_BYTES):
        number += 1
        if line.strip():
            tally.add(number, await importer.take(line, now=transfer.clock()))
            mark = read_mark(line) if len(line) < _LONGEST_MARK_BYTES else None
            tally.ended = mark is not None and mark.cursor is None
    return tally


@post("/cache/pairs", status_code=200, request_max_body_size=None)
async def keep_pairs(transfer: NamedDependency[Transfer], request: Request[Any, Any, Any]) -> Tally:
    """Requests with their answers, as JSON lines (`Pair`). No upstream is asked."""
    start = await transfer.store.snapshot()
    tally = Tally()
    number = 0
    async for line in lines_of(request.stream(), max_bytes=MAX_LINE_BYTES):
        number += 1
        try:
            pair = _PAIRS.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            tally.add(number, refused(f"not a pair: {error}"))
            continue
        tally.add(pair.line, await transfer.keep(pair, start))
    return tally


def _for_same_words(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, scope="", prompt="", embedder="", embedding=b"")


_PAIRS = msgspec.json.Decoder(Pair)
