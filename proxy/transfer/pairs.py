"""Requests with their answers, stored as if the upstream had just given them."""

from collections.abc import AsyncGenerator

import msgspec
from msgspec import Raw

from index.entry import Snapshot
from proxy.answer.recording import record_plain
from proxy.call import UNLIMITED, Call, Headers, Surface
from proxy.deciding import Decider
from proxy.errors import ClientError
from proxy.lookup.cache import Cache
from proxy.misses.keeping import Keeper, NotKept
from proxy.outcome import ExactHit
from proxy.port.receiving import Receiver
from proxy.question import Question
from proxy.request.choices import num_choices
from proxy.request.wire import surface_of
from proxy.transfer.tally import Fate, Kind, refused
from proxy.upstreams.base import UpstreamResponse

_JSON = ((b"content-type", b"application/json"),)


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a client would send it, with its whole plain answer. `path` is below `/v1`;
    `headers` has the client's credential, which decides whose answer it is."""

    line: int
    request: Raw
    response: Raw
    path: str = Surface.CHAT.value
    headers: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Pair(line={self.line}, path={self.path!r})"


class Pairs:
    """The way of pairs into the cache, through the same decisions as a live answer."""

    def __init__(
        self, receiver: Receiver, decider: Decider, *, cache: Cache, keeper: Keeper
    ) -> None:
        self._receiver = receiver
        self._decider = decider
        self._cache = cache
        self._keeper = keeper

    async def keep(self, pair: Pair, *, start: Snapshot) -> Fate:
        """`start`: the purges before the pairs began to come; every later one covers them."""
        try:
            question = self._decider.decide(self._call(pair))
        except ClientError as error:
            return refused(error.message)
        if not question.eligibility.write or question.fingerprint is None:
            reasons = ", ".join(question.eligibility.reasons) or "its route has no cache"
            return refused(f"answers to it are not stored: {reasons}")
        if question.call.surface is Surface.EMBEDDINGS and self._decider.pieces(question) != (
            question,
        ):
            return refused("a list of inputs is stored one by one: give a line to each")
        return await self._keep(pair, question, start)

    async def _keep(self, pair: Pair, question: Question, start: Snapshot) -> Fate:
        found = await self._cache.find(question)
        if found.barred is not None:
            return refused(f"answers to it are not stored: {found.barred}")
        if isinstance(found.hit, ExactHit):
            return Fate(kind=Kind.PRESENT)
        recording = record_plain(
            question.call.surface,
            200,
            _JSON,
            bytes(pair.response),
            max_bytes=question.max_entry_bytes,
            num_choices=num_choices(question.call),
        )
        upstream = question.route.upstreams[0].name
        response = UpstreamResponse(upstream=upstream, status=200, headers=_JSON, body=_nothing())
        found = msgspec.structs.replace(found, snapshot=start)
        entry = self._keeper.judge(question, found, response, recording)
        if isinstance(entry, NotKept):
            return refused(entry.reason)
        if await self._cache.keep(entry) is not None:
            return refused("the store did not take it: too large, purged meanwhile, or failing")
        return Fate(kind=Kind.STORED)

    def _call(self, pair: Pair) -> Call:
        path = pair.path.removeprefix("/v1")
        surface = surface_of(path)
        if surface is None:
            raise ClientError(400, f"{pair.path[:80]!r} is not a path whose answers are cached.")
        headers: Headers = tuple(
            (name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
            for name, value in pair.headers.items()
        )
        return self._receiver.decode(
            surface,
            path,
            b"",
            headers,
            bytes(pair.request),
            identity=self._receiver.admit(headers),
            request_id="warm",
            grant=UNLIMITED,
        )


async def _nothing() -> AsyncGenerator[bytes, None]:
    """The body was read before."""
    return
    yield b""
