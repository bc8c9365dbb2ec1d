"""The data port: one ASGI handler that receives, answers and sends.

It is plain ASGI, with no framework around it, because each layer here is paid by every hit and by
every chunk of a stream.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec
from litestar import Litestar
from litestar.di import Provide
from litestar.exceptions import HTTPException

from proxy.call import Headers
from proxy.errors import ClientError, ClientLeft, UpstreamError
from proxy.health import PATHS, Health, healthz, readyz
from proxy.observing.servertiming import server_timing
from proxy.observing.timing import Timing
from proxy.outcome import REFUSED, headers_of
from proxy.port.asgi import Application, Message, Receive, Scope, Send
from proxy.port.client import Client
from proxy.port.passage import Passage, Watcher
from proxy.refusing import refuse_http
from proxy.reply import (
    JSON,
    Answer,
    Reply,
    of_client_error,
    of_fault,
    of_upstream_error,
)
from proxy.request.requestid import request_id as id_of
from proxy.request.routing import Router
from proxy.request.target import Target, is_cached, target_of
from proxy.site import Site
from proxy.tenancy.quotas import with_limits

log = logging.getLogger("rejoinder.data")


Begin = Callable[[Headers], Timing]
"""A request arrives, with these headers."""


class DataPort:
    """ASGI application for everything below `/v1`, with and without that prefix."""

    def __init__(self, site: Site, *, begin: Begin, watchers: Sequence[Watcher] = ()) -> None:
        self.site = site
        self._begin = begin
        self._watchers = watchers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; whatever happens, in OpenAI's shape."""
        site = self.site  # as long as it is answered, whatever comes into force meanwhile
        timing = self._begin(scope["headers"])
        passage = Passage(
            request_id=id_of(scope["headers"]),
            arrived_at=time.time(),
            timing=timing,
            method=scope["method"],
            path=scope["raw_path"].decode("latin-1"),
        )
        client = Client(receive)
        try:
            with site.guests:
                reply = await self._reply(site, scope, client, passage)
                await _send(reply, passage, send)
        except ClientLeft:
            log.debug("%s: the client left", passage.request_id)
        except asyncio.CancelledError:
            if not client.gone:
                raise
            log.debug("%s: the client left", passage.request_id)
        finally:
            client.close()
            passage.total_ms = _since(timing)
            for watch in self._watchers:
                watch(passage)

    async def _reply(self, site: Site, scope: Scope, client: Client, passage: Passage) -> Reply:
        try:
            target = target_of(passage.method, passage.path)
        except ClientError as error:
            reply = of_client_error(error)
            if is_cached(scope["raw_path"]):
                reply.headers += headers_of(REFUSED)
            return reply
        if target.surface is None:
            return await _other(site, target, scope, client, passage)
        passage.surface = target.surface
        answer = passage.answer = await _answer(site, target, scope, client, passage)
        return answer.reply


def data_app(port: DataPort, health: Health) -> Application:
    """The data port's application: the port itself, and what load balancers ask."""
    asked: Any = Litestar(
        [healthz, readyz],
        dependencies={"health": Provide(lambda: health, sync_to_thread=False)},
        exception_handlers={HTTPException: refuse_http},
        openapi_config=None,
        logging_config=None,
    )

    async def data(scope: Scope, receive: Receive, send: Send) -> None:
        await (asked if scope["path"].rstrip("/") in PATHS else port)(scope, receive, send)

    return data


async def _answer(
    site: Site, target: Target, scope: Scope, client: Client, passage: Passage
) -> Answer:
    """What can be kept."""
    assert target.surface is not None
    timing = passage.timing
    try:
        question = await site.intake.question(
            target.surface,
            target.path,
            scope,
            client.receive,
            request_id=passage.request_id,
            timing=timing,
        )
        timing.received(question.route.model)
        passage.tenant = question.call.caller.tenant
        answer = await site.pipeline.answer(question, client)
        answer.question = question
        reply = answer.reply
        reply.headers = with_limits(reply.headers, question.call.grant)
        if not question.hides_outcome:
            reply.headers += headers_of(answer.outcome)
            if site.config.server_timing:
                reply.headers += (server_timing(timing),)
        return answer
    except ClientError as error:
        return _refused(of_client_error(error))
    except ClientLeft:
        raise
    except Exception:  # the outermost border: a bug of ours is one 500, logged
        log.exception("%s failed", passage.request_id)
        return _refused(of_fault(passage.request_id))


def _refused(reply: Reply) -> Answer:
    reply.headers += headers_of(REFUSED)
    return Answer(reply=reply, outcome=REFUSED)


async def _other(
    site: Site, target: Target, scope: Scope, client: Client, passage: Passage
) -> Reply:
    """What is not cached: the list of models, and everything that is only passed through."""
    try:
        identity = site.receiver.admit(tuple(scope["headers"]))
        passage.tenant = identity.caller.tenant
        if target.models:
            return _models(site.router, target.path, tenant=identity.caller.tenant)
        grant = site.quotas.admit(identity.caller.tenant)
        reply = await site.passthrough.answer(target.path, scope, client, identity, passage)
        reply.headers = with_limits(reply.headers, grant)
        return reply
    except ClientError as error:
        return of_client_error(error)
    except UpstreamError as error:
        return of_upstream_error(error)
    except ClientLeft:
        raise
    except Exception:  # as above
        log.exception("%s failed", passage.request_id)
        return of_fault(passage.request_id)


async def _send(reply: Reply, passage: Passage, send: Send) -> None:
    """What becomes of it is told to the passage."""
    headers: Headers = (*reply.headers, (b"x-request-id", passage.request_id.encode()))
    passage.first_ms = _since(passage.timing)
    passage.status = reply.status
    start: Message = {"type": "http.response.start", "status": reply.status}
    if isinstance(reply.body, bytes):
        length = (b"content-length", b"%d" % len(reply.body))
        await send({**start, "headers": [*headers, length]})
        await send({"type": "http.response.body", "body": reply.body, "more_body": False})
        passage.num_bytes = len(reply.body)
        passage.ended = "whole"
        return
    await send({**start, "headers": list(headers)})
    async with contextlib.aclosing(reply.body) as pieces:
        try:
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                passage.num_bytes += len(piece)
        except UpstreamError as error:
            # Not ended cleanly: without the last chunk no client can take it for a whole answer.
            log.warning("a stream broke off: %s", error)
            passage.ended = "broken"
            return
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    passage.ended = "whole"


def _since(timing: Timing) -> float:
    """Milliseconds."""
    return (time.perf_counter() - timing.began_s) * 1000


def _models(router: Router, path: str, *, tenant: str) -> Reply:
    model_id = unquote(path.removeprefix("/models").strip("/"))
    if model_id:
        body = msgspec.json.encode(router.model(model_id, tenant=tenant))
    else:
        body = msgspec.json.encode({"object": "list", "data": router.models(tenant=tenant)})
    return Reply(status=200, headers=(JSON,), body=body)
