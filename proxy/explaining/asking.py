"""What the people who run the proxy ask to have explained, and the answer."""

from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw, UnsetType

from index.errors import EmbedderFault
from index.semantic import Semantic
from proxy.call import UNLIMITED, Call, Caller, Directives, Headers, Surface
from proxy.deciding import Decider
from proxy.errors import ClientError
from proxy.explaining.comparing import beside, compare
from proxy.explaining.explainer import Explainer
from proxy.explaining.views import Comparison, Explanation
from proxy.observing.recollection import Recollection, call_of
from proxy.observing.seen import Seen
from proxy.port.receiving import Receiver
from proxy.request.wire import surface_of
from proxy.tenancy.tenants import ANONYMOUS, CREDENTIAL_HEADERS, Identity


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request as a client would send it, or the id of one that went through."""

    request: Raw | UnsetType = UNSET
    """The body."""
    request_id: str = ""
    path: str = Surface.CHAT.value
    """Below `/v1`."""
    headers: dict[str, str] = {}
    """The client's; a credential among them says whose request it is, also of an id."""
    tenant: str | None = None
    """Whose request it is, where no credential says it; of an id: only if it is this one's."""
    credential_id: str = ""
    """A line of the request log has it: who shares answers with whom."""
    directives: Directives | UnsetType = UNSET
    """A line of the request log has them apart from the body."""
    query: str = ""

    def __repr__(self) -> str:
        return f"Asked(request_id={self.request_id!r}, path={self.path!r})"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is to be explained."""

    asked: Asked
    recollection: Recollection | None = None
    """Of the id that was asked for."""
    seen: Seen | None = None


class Asking:
    """The explanations of one config."""

    def __init__(
        self,
        *,
        receiver: Receiver,
        decider: Decider,
        explainer: Explainer,
        semantic: Callable[[], Semantic],
    ) -> None:
        self._receiver = receiver
        self._decider = decider
        self._explainer = explainer
        self._semantic = semantic

    async def explain(self, told: Told) -> Explanation:
        """Raises ClientError where it is no request, StoreFault."""
        call, seen = self._call(told), told.seen
        return msgspec.structs.replace(
            await self._explainer.explain(call),
            request_id=told.asked.request_id,
            seen=seen,
            past=None if seen is None else self._explainer.past(call, seen),
        )

    async def compare(self, one: Told, other: Told) -> Comparison:
        """Raises as `explain`."""
        a, b = await self.explain(one), await self.explain(other)
        rules = self._decider.decide(self._call(other)).rules
        similarity = None
        if rules is not None and a.scope and a.scope == b.scope:
            similarity = await self._similarity(a.prompt, b.prompt)
        return compare(a, b, beside(a, b, similarity=similarity, rules=rules))

    async def _similarity(self, one: str, other: str) -> float | None:
        try:
            return await self._semantic().similarity(one, other)
        except EmbedderFault:
            return None

    def caller_of(self, asked: Asked) -> Caller | None:
        """Whose key is among the headers; None where none is. Raises ClientError where it is
        nobody's."""
        headers = _lines(asked.headers)
        is_keyed = any(name in CREDENTIAL_HEADERS for name, _ in headers)
        return self._admitted(headers).caller if is_keyed else None

    def _call(self, told: Told) -> Call:
        if told.recollection is not None:
            return call_of(told.recollection)
        asked, headers = told.asked, _lines(told.asked.headers)
        if isinstance(asked.request, UnsetType):
            raise ClientError(400, "Give a request, or the id of one.", param="request")
        path = "/" + asked.path.removeprefix("/v1").lstrip("/")
        surface = surface_of(path)
        if surface is None:
            raise ClientError(400, f"{path[:80]!r} is not a path whose answers are cached.")
        call = self._receiver.decode(
            surface,
            path,
            asked.query.encode("latin-1", "replace"),
            headers,
            bytes(asked.request),
            identity=self._identity(asked, headers),
            request_id="explain",
            grant=UNLIMITED,
        )
        if not isinstance(asked.directives, UnsetType):
            call = msgspec.structs.replace(call, directives=asked.directives)
        self._check(call, asked)
        return call

    def _check(self, call: Call, asked: Asked) -> None:
        """A tenant's name alone does not tell which of its answers are this caller's."""
        policy = self._decider.decide(call).route.policy
        if policy is None or policy.share != "credential" or asked.tenant in (None, ANONYMOUS):
            return
        if not call.caller.credential_id:
            message = (
                "Answers are shared by credential here, and a tenant may have several: give "
                "headers with the client's key, or the id of a request that went through."
            )
            raise ClientError(400, message, param="headers")

    def _identity(self, asked: Asked, headers: Headers) -> Identity:
        if asked.tenant is not None:
            caller = Caller(tenant=asked.tenant, credential_id=asked.credential_id)
            return Identity(caller=caller, credential=None)
        return self._admitted(headers)

    def _admitted(self, headers: Headers) -> Identity:
        try:
            return self._receiver.admit(headers)
        except ClientError as error:
            message = f"Whose request is it? Give a tenant, or headers with a key: {error.message}"
            raise ClientError(400, message, param="tenant") from None


def _lines(headers: dict[str, str]) -> Headers:
    return tuple(
        (name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in headers.items()
    )
