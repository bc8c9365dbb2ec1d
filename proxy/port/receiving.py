"""From the raw request to a `Call`: who asks, what is asked, within the limits."""

from collections.abc import Callable

from proxy.call import Call, Grant, Headers, Surface
from proxy.errors import ClientError, ClientLeft
from proxy.observing.timing import Timing
from proxy.port.asgi import Receive
from proxy.request import directives, wire
from proxy.request.headers import is_looping
from proxy.settings.config import Limits
from proxy.settings.units import Bytes
from proxy.tenancy.tenants import Identity, Tenants


class Receiver:
    """Reads requests of one config. Everything that it refuses is a ClientError."""

    def __init__(
        self,
        tenants: Tenants,
        limits: Limits,
        *,
        via: bytes,
        clock: Callable[[], float],
    ) -> None:
        self._tenants = tenants
        self._limits = limits
        self.max_body_bytes = limits.body
        """A longer body is refused."""
        self._via = via
        self._clock = clock

    def admit(self, headers: Headers) -> Identity:
        """Who asks. Raises ClientError: 401 for a bad key, 431 for too many headers, 508 for a
        request that has been here before."""
        self.measure(headers)
        if is_looping(headers, via=self._via):
            text = (
                "This request has passed through this proxy before: an upstream leads back to it."
            )
            raise ClientError(508, text, code="loop_detected", retry=False)
        return self._tenants.identify(headers)

    def measure(self, headers: Headers) -> None:
        """Raises ClientError 431 for too many headers."""
        if sum([len(name) + len(value) for name, value in headers]) > self._limits.headers:
            raise ClientError(431, f"The headers exceed the limit of {self._limits.headers}.")

    def decode(
        self,
        surface: Surface,
        path: str,
        query: bytes,
        headers: Headers,
        body: bytes,
        *,
        identity: Identity,
        request_id: str,
        grant: Grant,
        timing: Timing | None = None,
    ) -> Call:
        """Read the body of a request to a cached surface."""
        decoded = wire.decode(surface, body)
        return Call(
            request_id=request_id,
            caller=identity.caller,
            surface=surface,
            path=path,
            query=query,
            headers=headers,
            credential=identity.credential,
            body=decoded.body,
            fields=decoded.fields,
            model=decoded.view.model or "",
            stream=decoded.stream,
            include_usage=decoded.include_usage,
            directives=directives.parse(headers, decoded.cache),
            received_at=self._clock(),
            grant=grant,
            timing=timing or Timing(),
        )


async def read_body(receive: Receive, headers: Headers, *, max_bytes: int) -> bytes:
    """The whole body. Raises ClientError 413 (at once, where a length was declared), ClientLeft."""
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value) > max_bytes:
            raise _too_large(max_bytes)
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return _checked(message["type"], body, max_bytes)
    pieces, size = [body], len(body)
    while message.get("more_body"):
        message = await receive()
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > max_bytes:
            raise _too_large(max_bytes)
    return _checked(message["type"], b"".join(pieces), max_bytes)


def _checked(kind: str, body: bytes, max_bytes: int) -> bytes:
    if kind == "http.disconnect":
        raise ClientLeft
    if len(body) > max_bytes:
        raise _too_large(max_bytes)
    return body


def _too_large(max_bytes: int) -> ClientError:
    text = f"The body exceeds the limit of {Bytes(max_bytes)}."
    return ClientError(413, text, code="request_too_large")
