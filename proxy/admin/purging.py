"""Purges: what depended on something is not served again."""

import logging
from typing import Any

import msgspec
from litestar import Request, delete, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from index.store import Purge
from proxy.admin.deeds import audited
from proxy.admin.office import Office
from proxy.admin.parameters import body_of, key_of, tag_of
from proxy.errors import ClientError
from proxy.request.routing import names_of

log = logging.getLogger("rejoinder.admin")


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


@delete("/cache/entries/{key:str}", status_code=200)
async def forget(
    office: NamedDependency[Office], request: Request[Any, Any, Any], key: FromPath[str]
) -> PurgeAnswer:
    """Purge one key: what is stored under it, and what is being made for it."""
    return await _purge(office, request, Purge(keys=(key_of(key),)))


@post("/cache/purge", status_code=200)
async def purge(office: NamedDependency[Office], request: Request[Any, Any, Any]) -> PurgeAnswer:
    """Purge by tags, keys, models, tenants, or everything. Done when it returns.

    Models may be named as clients name them: what the config in force makes of a name is purged
    too.
    """
    body = await body_of(request, PurgeBody, expected="a purge")
    if not (body.tags or body.keys or body.models or body.tenants or body.all):
        raise ClientError(400, "Nothing to purge: give tags, keys, models, tenants or all.")
    config = office.config()
    asked = Purge(
        tags=tuple(map(tag_of, body.tags)),
        keys=tuple(map(key_of, body.keys)),
        models=tuple(name for model in body.models for name in names_of(model, config)),
        tenants=body.tenants,
        everything=body.all,
        soft=body.soft,
        dry_run=body.dry_run,
    )
    return await _purge(office, request, asked)


async def _purge(office: Office, request: Request[Any, Any, Any], asked: Purge) -> PurgeAnswer:
    if asked.dry_run:
        return await _purged(office, asked)
    return await audited(office.deeds, request, "purge", asked, _purged(office, asked))


async def _purged(office: Office, asked: Purge) -> PurgeAnswer:
    done = await office.store.purge(asked, now=office.clock())
    pages = await office.kept.purge(asked, done)
    if not asked.dry_run:
        office.metrics.purges.labels("soft" if asked.soft else "hard").inc()
        if done.matched == 0:
            office.metrics.empty_purges.inc()
        log.info("purge %d: %s", done.sequence, asked)
    return PurgeAnswer(
        matched=done.matched, entries=done.entries, pages=pages, sequence=done.sequence
    )
