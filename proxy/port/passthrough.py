"""Surfaces that are never cached (files, audio, images, batches, …): streamed through untouched."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from proxy.call import Headers
from proxy.errors import ClientLeft
from proxy.port.asgi import Scope
from proxy.port.client import Client
from proxy.port.passage import Passage
from proxy.reply import Reply
from proxy.request.headers import forwarded, passed_on
from proxy.request.matching import Facts
from proxy.request.routing import Router
from proxy.tenancy.tenants import Identity
from proxy.upstreams.base import UpstreamRequest, UpstreamResponse
from proxy.upstreams.fallback import Sender

_LENGTH = frozenset({b"content-length", b"transfer-encoding"})


class Passthrough:
    """Sends a request to the first upstream of its route, once: a body that streams cannot be sent
    again."""

    def __init__(self, router: Router, sender: Sender, *, via: bytes) -> None:
        self._router = router
        self._sender = sender
        self._via = via

    async def answer(
        self, path: str, scope: Scope, client: Client, identity: Identity, passage: Passage
    ) -> Reply:
        """Raises ClientError (no route), UpstreamError, ClientLeft; cancels itself when the client
        hangs up."""
        headers: Headers = tuple(scope["headers"])
        facts = Facts(model=None, path=path, headers=headers, tenant=identity.caller.tenant)
        upstream = self._router.route(facts).upstreams[0]
        length = tuple(pair for pair in headers if pair[0] == b"content-length")
        has_body = any(name in _LENGTH for name, _ in headers)
        asking = asyncio.current_task()
        assert asking is not None
        if not has_body:
            client.when_gone(asking.cancel)
        request = UpstreamRequest(
            request_id=passage.request_id,
            method=scope["method"],
            path=path,
            query=scope["query_string"],
            headers=(*forwarded(headers, via=self._via), *length),
            credential=identity.credential,
            body=_body(client, asking) if has_body else b"",
            stream=False,
            timing=passage.timing,
        )
        response = await self._sender.relay(upstream, request)
        # The body is passed on unchanged, so its length holds.
        size = tuple(pair for pair in response.headers if pair[0] == b"content-length")
        return Reply(
            status=response.status,
            headers=(*passed_on(response.headers), *size),
            body=_pieces(response),
        )


async def _body(client: Client, asking: asyncio.Task[Any]) -> AsyncIterator[bytes]:
    """The request's body as it comes in; at its end the watch for the client begins. `asking` waits
    for the answer: the transport may read this in a task of its own."""
    more = True
    while more:
        message = await client.receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        if message["body"]:
            yield message["body"]
        more = message["more_body"]
    client.when_gone(asking.cancel)


async def _pieces(response: UpstreamResponse) -> AsyncGenerator[bytes, None]:
    # A generator of our own, so that closing it closes the connection.
    async with contextlib.aclosing(response.body) as pieces:
        async for piece in pieces:
            yield piece
