"""The admin port: what the people and scripts that run the proxy may see and do."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
from litestar import Litestar, Request, Response, delete, get, post
from litestar.di import NamedDependency, Provide
from litestar.exceptions import HTTPException
from litestar.params import FromPath, FromQuery, QueryParameter

from index import tags as tag_grammar
from index.entry import Entry
from index.errors import InvalidTag, StoreFault
from index.store import Filter, Purge, Store
from proxy.counts import Counts
from proxy.errors import ClientError, ErrorDetail, error_body
from proxy.gate import Gate
from proxy.health import Health, healthz, readyz
from proxy.metrics import Metrics
from proxy.reload import ReloadReport
from proxy.routing import names_of
from proxy.settings import config as written
from proxy.settings.file import dump
from proxy.transfer.counter import Transfer, export_entries, import_entries, keep_pairs

log = logging.getLogger("rejoinder.admin")

_HEX = frozenset("0123456789abcdef")
_MAX_PAGE = 1000


class Office(msgspec.Struct, frozen=True, kw_only=True):
    """What the handlers work with."""

    config: Callable[[], written.Config]
    """The one in force."""
    store: Store
    health: Health
    metrics: Metrics
    clock: Callable[[], float]
    stats: Callable[[], Awaitable[dict[str, Any]]]
    counts: Callable[[], Awaitable[Sequence[Counts]]]
    """Of all processes."""
    reload: Callable[[], Awaitable[ReloadReport]]
    transfer: Transfer


class PurgeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /cache/purge`. Lists are ORed. `soft` leaves what only stale rules may serve."""

    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    all: bool = False
    soft: bool = False
    dry_run: bool = False


class PurgeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`matched`: live answers covered, null when too many to count in time. `entries`: freed now.
    `pages`: KV pages dropped. `sequence`: the store's purge counter afterwards."""

    matched: int | None
    entries: int
    pages: int
    sequence: int


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


@get("/cache/stats")
async def stats(office: NamedDependency[Office]) -> dict[str, Any]:
    """Sizes and counts now."""
    return await office.stats()


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
    where = Filter(tag=None if tag is None else _tag(tag), model=model, tenant=tenant, text=q)
    page = await office.store.scan(where, now=office.clock(), cursor=cursor, limit=limit)
    return EntryPage(entries=tuple(map(_view, page.entries)), cursor=page.cursor)


@get("/cache/entries/{key:str}")
async def entry(office: NamedDependency[Office], key: FromPath[str]) -> EntryView:
    """One entry by its key."""
    lookup = await office.store.get(_key(key), now=office.clock())
    if lookup.entry is None:
        raise ClientError(404, f"There is no entry {key} ({lookup.reason}).", code="not_found")
    return _view(lookup.entry)


@delete("/cache/entries/{key:str}", status_code=200)
async def forget(office: NamedDependency[Office], key: FromPath[str]) -> PurgeAnswer:
    """Purge one key: what is stored under it, and what is being made for it."""
    return await _purge(office, Purge(keys=(_key(key),)))


@post("/cache/purge", status_code=200)
async def purge(office: NamedDependency[Office], request: Request[Any, Any, Any]) -> PurgeAnswer:
    """Purge by tags, keys, models, tenants, or everything. Done when it returns.

    Models may be named as clients name them: what the config in force makes of a name is purged
    too.
    """
    try:
        body = msgspec.json.decode(await request.body(), type=PurgeBody)
    except msgspec.MsgspecError as error:
        raise ClientError(400, f"Not a purge: {error}.") from None
    if not (body.tags or body.keys or body.models or body.tenants or body.all):
        raise ClientError(400, "Nothing to purge: give tags, keys, models, tenants or all.")
    config = office.config()
    asked = Purge(
        tags=tuple(map(_tag, body.tags)),
        keys=tuple(map(_key, body.keys)),
        models=tuple(name for model in body.models for name in names_of(model, config)),
        tenants=body.tenants,
        everything=body.all,
        soft=body.soft,
        dry_run=body.dry_run,
    )
    return await _purge(office, asked)


@get("/config")
async def config(office: NamedDependency[Office]) -> Response[bytes]:
    """The config as it is in force, secrets masked."""
    return Response(dump(office.config()), media_type="application/json")


@post("/reload", status_code=200)
async def reload(office: NamedDependency[Office]) -> Response[bytes]:
    """Read the config file again. 200: it is in force in every process as this returns; 400: the
    one before it still is, and `problems` has every mistake with its line."""
    report = await office.reload()
    answer = msgspec.to_builtins(report)
    if not report.ok:
        detail = ErrorDetail(
            message="\n".join(report.problems),
            type="invalid_request_error",
            param=None,
            code="invalid_config",
        )
        answer["error"] = msgspec.to_builtins(detail)
    return Response(
        msgspec.json.encode(answer),
        status_code=200 if report.ok else 400,
        media_type="application/json",
    )


@get("/metrics")
async def metrics(office: NamedDependency[Office]) -> Response[bytes]:
    """Prometheus' text format."""
    exposition = office.metrics.exposition(await office.counts())
    return Response(exposition, media_type="text/plain; version=0.0.4")


def admin_app(office: Office, gate: Callable[[], Gate]) -> Litestar:
    """The admin port's application. `gate`: that of the config in force."""

    async def check(request: Request[Any, Any, Any]) -> Response[bytes] | None:
        try:
            gate().check(request.url.path, request.headers)
        except ClientError as error:
            return _refuse(request, error)
        return None

    return Litestar(
        [
            *(stats, entries, entry, forget, purge, export_entries, import_entries, keep_pairs),
            *(config, reload, metrics, healthz, readyz),
        ],
        before_request=check,
        dependencies={
            "office": Provide(lambda: office, sync_to_thread=False),
            "health": Provide(lambda: office.health, sync_to_thread=False),
            "transfer": Provide(lambda: office.transfer, sync_to_thread=False),
        },
        exception_handlers={
            ClientError: _refuse,
            HTTPException: _refuse_http,
            StoreFault: _store_failed,
        },
        openapi_config=None,
        logging_config=None,
    )


async def _purge(office: Office, asked: Purge) -> PurgeAnswer:
    done = await office.store.purge(asked, now=office.clock())
    if not asked.dry_run:
        office.metrics.purges.labels("soft" if asked.soft else "hard").inc()
        log.info("purge %d: %s", done.sequence, asked)
    return PurgeAnswer(matched=done.matched, entries=done.entries, pages=0, sequence=done.sequence)


def _tag(tag: str) -> str:
    try:
        return tag_grammar.encode(tag)
    except InvalidTag as error:
        raise ClientError(400, str(error), param="tags") from None


def _key(key: str) -> str:
    if len(key) != 64 or not _HEX.issuperset(key):
        raise ClientError(400, f"{key[:80]!r} is not a key: 64 hex digits.", param="keys")
    return key


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


def _refuse(_: Request[Any, Any, Any], error: ClientError) -> Response[bytes]:
    body = error_body(error.message, kind=error.kind, param=error.param, code=error.code)
    return Response(body, status_code=error.status, media_type="application/json")


def _refuse_http(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    return _refuse(request, ClientError(error.status_code, error.detail))


def _store_failed(request: Request[Any, Any, Any], error: StoreFault) -> Response[bytes]:
    return _refuse(request, ClientError(503, f"The store failed: {error}.", kind="server_error"))
