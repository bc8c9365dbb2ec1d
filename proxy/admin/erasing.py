"""One tenant's or one user's data, taken out of everything that is kept."""

from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Request, post
from litestar.di import NamedDependency

from index.store import Filter, Purge
from index.tags import subject_tag, tenant_tag
from proxy.admin.deeds import audited
from proxy.admin.office import Office
from proxy.admin.parameters import body_of
from proxy.errors import ClientError
from proxy.journal.erasure import Erasure
from proxy.observing.recent import MAX_REQUESTS
from proxy.observing.seen import Seen
from proxy.processes.gathering import PATIENCE_S, Forget, Recall
from proxy.tenancy.subjects import subject_of

_PAGE = 200


class EraseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /cache/erase`. One of the two. `user`: as requests name it in `user`,
    `safety_identifier` or `metadata.user_id`."""

    tenant: str = ""
    user: str = ""


class EraseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is gone. Where `scrubbed` is false it is to be asked for again: the store's file was in
    use for so long that what was freed may still be readable in it, or workers are `missing`."""

    entries: int
    """Stored answers, with their embeddings."""
    pages: int
    """KV pages of engines."""
    lines: int
    """Of the request log."""
    requests: int
    """In the memory of all processes."""
    sequence: int
    missing: int
    """Workers that did not answer in time, and may still hold or write down something of it."""
    scrubbed: bool


@post("/cache/erase", status_code=200)
async def erase(office: NamedDependency[Office], request: Request[Any, Any, Any]) -> EraseAnswer:
    """Erase a tenant's or a user's answers, log lines, vectors and pages. It covers what is being
    made, too. Of several proxies on one Redis it reaches the answers of all, but the log, the
    memory and the pages of this one: ask each. What remains is the mark of the purge, with the
    tenant's name or the user's digest, for an hour or more."""
    body = await body_of(request, EraseBody, expected="an erasure")
    if bool(body.tenant) == bool(body.user):
        raise ClientError(400, "Give one of tenant, user.")
    subject = subject_of(body.user, secret=office.store.secret) if body.user else ""
    erasure = Erasure(tenant=body.tenant, subject=subject)
    # The user's name is what is to be forgotten: the audit log has its digest only.
    return await audited(office.deeds, request, "erase", erasure, _erase(office, erasure))


async def _erase(office: Office, erasure: Erasure) -> EraseAnswer:
    store, now = office.store, office.clock()
    tag = subject_tag(erasure.subject) if erasure.subject else tenant_tag(erasure.tenant)
    keys = await _keys(office, tag)
    asked = Purge(tags=(tag,))
    # First the purge, so that nothing that is being made comes after it.
    done = await store.purge(asked, now=now)
    pages = await office.kept.purge(asked, done)
    for key in keys:
        await store.delete(key)
    await store.sweep(now=now)
    office.metrics.purges.labels("hard").inc()
    try:
        recalled = await office.peers().ask(Recall(limit=MAX_REQUESTS))
        gone = await _gone(office, erasure, recalled.requests)
        whole = msgspec.structs.replace(erasure, at=now, keys=gone.union(keys) - {""})
        forget = Forget(erasure=whole, until=office.clock() + PATIENCE_S)
        forgotten = await office.peers().ask(forget)
        lines = await office.records.erase(whole)
    except OSError as error:
        message = f"The request log cannot be rewritten: {error.strerror}. Ask for it again."
        raise ClientError(503, message, kind="server_error") from error
    missing = max(recalled.num_missing, forgotten.num_missing)
    return EraseAnswer(
        entries=len(keys),
        pages=pages,
        lines=lines,
        requests=forgotten.num_dropped,
        sequence=done.sequence,
        missing=missing,
        scrubbed=await store.scrub() and not missing,
    )


async def _gone(office: Office, erasure: Erasure, seen: Sequence[Seen]) -> frozenset[str]:
    """Keys of answers that may be there no more, but were asked for."""
    asked = frozenset(one.key for one in seen if erasure.covers(one))
    return asked | await office.records.keys(erasure)


async def _keys(office: Office, tag: str) -> list[str]:
    keys: list[str] = []
    cursor: str | None = None
    while True:
        page = await office.store.scan(
            Filter(tag=tag), now=office.clock(), cursor=cursor, limit=_PAGE
        )
        keys += [entry.key for entry in page.entries]
        cursor = page.cursor
        if cursor is None:
            return keys
