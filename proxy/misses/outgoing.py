"""From a question to the request that its upstream gets, and back."""

import functools
from collections.abc import Callable, Mapping

import msgspec

from index.entry import Snapshot
from proxy.errors import UpstreamRedirect
from proxy.misses.flight import Head
from proxy.question import Question
from proxy.request import wire
from proxy.request.headers import forwarded
from proxy.request.provenance import provenance_of
from proxy.upstreams.base import Provenance, Upstream, UpstreamRequest, UpstreamResponse
from proxy.upstreams.fallback import Sender

_NOTHING: Mapping[str, bytes] = {}


class Outgoing:
    """Asks the upstreams of a question's route."""

    def __init__(self, sender: Sender, *, via: bytes) -> None:
        self._sender = sender
        self._via = via

    async def send(
        self,
        question: Question,
        *,
        snapshot: Snapshot | None = None,
        replace: Mapping[str, bytes] = _NOTHING,
    ) -> UpstreamResponse:
        """The response, headers first; never a redirect. `snapshot`: the store as the request saw
        it; `replace` puts other members (JSON) into the body. Raises UpstreamError."""
        provenance = functools.partial(provenance_of, question, snapshot)
        request = functools.partial(self._request, question, _body(question, replace), provenance)
        response = await self._sender.send(question.route, request)
        if 300 <= response.status < 400:
            await response.body.aclose()
            text = f"upstream {response.upstream}: answers with a redirect ({response.status})"
            raise UpstreamRedirect(text, upstream=response.upstream)
        return response

    def _request(
        self,
        question: Question,
        body: bytes,
        provenance: Callable[[], Provenance],
        _upstream: Upstream,
    ) -> UpstreamRequest:
        call = question.call
        return UpstreamRequest(
            request_id=call.request_id,
            method="POST",
            path=call.surface.value,
            query=call.query,
            headers=forwarded(call.headers, via=self._via),
            credential=call.credential,
            body=body,
            stream=call.stream,
            timing=call.timing,
            provenance=provenance,
        )


def head_of(question: Question, response: UpstreamResponse, *, streaming: bool) -> Head:
    """What the listeners of a flight are told first."""
    return Head(
        status=response.status,
        headers=response.headers,
        streaming=streaming,
        upstream=response.upstream,
        varied=question.varied_by(response.headers),
        asker=question.call.caller.credential_id if response.is_personal else "",
    )


def _body(question: Question, replace: Mapping[str, bytes]) -> bytes:
    """The client's own bytes, but for the name of the model and what is replaced."""
    call = question.call
    if question.route.model != call.model:
        replace = {**replace, "model": msgspec.json.encode(question.route.model)}
    if not replace:
        return call.body
    return wire.edit(wire.members(call.body), remove=(), replace=replace)
