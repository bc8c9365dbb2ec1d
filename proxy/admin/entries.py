"""Stored answers, one by one and in pages."""

from typing import Annotated

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter

from index.entry import Entry
from index.store import Filter
from proxy.admin.office import Office
from proxy.admin.parameters import key_of, tag_of
from proxy.errors import ClientError

_MAX_PAGE = 1000


class EntryView(msgspec.Struct, frozen=True, kw_only=True):
    """One stored answer, without the answer. Times are Unix seconds."""

    key: str
    scope: str
    tenant: str
    policy: str
    upstream: str
    model: str
    surface: str
    prompt: str
    tags: tuple[str, ...]
    created_at: float
    expires_at: float
    input_tokens: int
    output_tokens: int
    latency_ms: float
    size_bytes: int


class EntryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first; `cursor` continues, null at the end."""

    entries: tuple[EntryView, ...]
    cursor: str | None


@get("/cache/entries")
async def entries(
    office: NamedDependency[Office],
    tag: FromQuery[str | None] = None,
    model: FromQuery[str | None] = None,
    tenant: FromQuery[str | None] = None,
    q: FromQuery[str | None] = None,
    cursor: FromQuery[str | None] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=_MAX_PAGE)] = 100,
) -> EntryPage:
    """Live entries that match all that is given; `q` is a part of the prompt."""
    where = Filter(tag=None if tag is None else tag_of(tag), model=model, tenant=tenant, text=q)
    page = await office.store.scan(where, now=office.clock(), cursor=cursor, limit=limit)
    return EntryPage(entries=tuple(map(_view, page.entries)), cursor=page.cursor)


@get("/cache/entries/{key:str}")
async def entry(office: NamedDependency[Office], key: FromPath[str]) -> EntryView:
    """One entry by its key."""
    lookup = await office.store.get(key_of(key), now=office.clock())
    if lookup.entry is None:
        raise ClientError(404, f"There is no entry {key} ({lookup.reason}).", code="not_found")
    return _view(lookup.entry)


def _view(entry: Entry) -> EntryView:
    return EntryView(
        key=entry.key,
        scope=entry.scope,
        tenant=entry.tenant,
        policy=entry.policy,
        upstream=entry.upstream,
        model=entry.model,
        surface=entry.surface,
        prompt=entry.prompt,
        tags=entry.tags,
        created_at=entry.created_at,
        expires_at=entry.expires_at,
        input_tokens=entry.input_tokens,
        output_tokens=entry.output_tokens,
        latency_ms=entry.latency_ms,
        size_bytes=entry.size_bytes(),
    )
