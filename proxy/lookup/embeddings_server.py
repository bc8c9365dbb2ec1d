"""Where a remote embedder's requests go: HTTP, with the client of the upstreams."""

import contextlib

from index.embedders.embedding_server import Reply
from index.errors import EmbedderFault
from proxy.errors import UpstreamError
from proxy.port import large
from proxy.settings.embedder import Embedder
from proxy.settings.units import Duration
from proxy.settings.upstreams import Timeout, Upstream
from proxy.upstreams.base import UpstreamRequest
from proxy.upstreams.remote import RemoteServer
from proxy.upstreams.transport import Transport, tls_context

_LONGEST_REPLY_BYTES = 16 * 2**20
_TIMEOUT = Timeout(connect=Duration(1), first_byte=Duration(3), idle=Duration(3), total=Duration(3))
"""A policy's deadline is much shorter; this is when the server counts as away."""


class EmbeddingServer:
    """See `index.embedders.embedding_server.Server`."""

    def __init__(self, config: Embedder) -> None:
        """`config` has a `base_url`. Raises EmbedderFault where certificates cannot be read."""
        assert config.base_url is not None
        upstream = Upstream(
            base_url=config.base_url,
            credential="own" if config.api_key else "passthrough",
            api_key=config.api_key,
            timeout=_TIMEOUT,
        )
        try:
            context = tls_context(upstream)
        except OSError as error:
            raise EmbedderFault(f"the embedder's certificates: {error}") from error
        self._server = RemoteServer(
            config.base_url,
            upstream="embedder",
            config=upstream,
            transport=Transport(config.base_url, context=context, connect_s=_TIMEOUT.connect),
        )
        self.name = f"the embedder at {self._server.name}"

    async def ask(self, body: bytes) -> Reply:
        request = UpstreamRequest(
            request_id="embedder",
            method="POST",
            path="/embeddings",
            query=b"",
            headers=((b"content-type", b"application/json"),),
            credential=None,
            body=body,
            stream=False,
        )
        try:
            response = await self._server.send(request)
            async with contextlib.aclosing(response.body) as pieces:
                read = await large.read(pieces, max_entry_bytes=_LONGEST_REPLY_BYTES)
        except UpstreamError as error:
            raise EmbedderFault(f"{self.name}: {error}") from error
        if not read.is_whole:
            raise EmbedderFault(f"{self.name}: its answer is too large")
        return Reply(response.status, b"".join(read.pieces))

    async def close(self) -> None:
        await self._server.close()
