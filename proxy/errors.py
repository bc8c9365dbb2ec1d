"""Errors of the proxy.

RejoinderError
├── ConfigError          the config file is wrong; every problem with its path and line
├── ClientError          the request is wrong; answered with its status in OpenAI's shape
├── ClientLeft           the client hung up; nobody is left to be answered
└── UpstreamError        no usable answer came from an upstream
    ├── UpstreamBusy           too many requests in flight already: nothing was sent
    ├── UpstreamUnreachable    no connection: nothing was sent, so another try is safe
    ├── UpstreamStopped        this proxy is shutting down; another one may do better
    ├── UpstreamTimeout        a phase took too long: connect, first_byte, idle or total
    ├── UpstreamRedirect       it sends elsewhere, where nobody follows
    └── UpstreamBroken         the connection failed in the middle, or the stream ended too early
        └── UpstreamRestarting     the engine died with the request or is late, and will be back
"""

import msgspec


class RejoinderError(Exception):
    """Root of everything that the proxy raises on purpose."""


class ConfigError(RejoinderError):
    """A config that cannot work. `problems` are whole lines: `file:line: path: what is wrong`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class ClientError(RejoinderError):
    """A request that is answered with an error. `retry` sets `x-should-retry` where it is given,
    `allow` (methods) goes with 405, `headers` go out as they are."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry: bool | None = None,
        allow: tuple[str, ...] = (),
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.retry = retry
        self.allow = allow
        self.headers = headers


class ClientLeft(RejoinderError):
    """The client hung up while it waited. Nobody is left to be answered."""


class UpstreamError(RejoinderError):
    """No usable answer from an upstream. `upstream` is its name in the config. No secrets."""

    def __init__(self, message: str, *, upstream: str) -> None:
        super().__init__(message)
        self.upstream = upstream


class UpstreamBusy(UpstreamError):
    """As many requests in flight as its config allows, and no place came free in time."""


class UpstreamUnreachable(UpstreamError):
    """Refused, unresolved, TLS failed, or the engine is not running."""


class UpstreamStopped(UpstreamError):
    """Broken off because this proxy is shutting down."""


class UpstreamTimeout(UpstreamError):
    """`phase` is `connect`, `first_byte`, `idle` or `total`."""

    def __init__(self, message: str, *, upstream: str, phase: str) -> None:
        super().__init__(message, upstream=upstream)
        self.phase = phase


class UpstreamRedirect(UpstreamError):
    """A status 3xx. Followed by nobody: where requests and their keys go is the config's to say."""


class UpstreamBroken(UpstreamError):
    """Broken after the request was sent. `before_first_byte`: nothing of the answer had come.
    `told`: the upstream itself told the error, as the last event of its stream."""

    def __init__(
        self,
        message: str,
        *,
        upstream: str,
        before_first_byte: bool = False,
        told: bool = False,
    ) -> None:
        super().__init__(message, upstream=upstream)
        self.before_first_byte = before_first_byte
        self.told = told


class UpstreamRestarting(UpstreamBroken):
    """The engine's process died; it is started again, so the client may ask again. `late`: it was
    waited for as long as a request waits."""

    def __init__(
        self, message: str, *, upstream: str, before_first_byte: bool, late: bool = False
    ) -> None:
        super().__init__(message, upstream=upstream, before_first_byte=before_first_byte)
        self.late = late


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's error object; `code` is a string or null."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The one shape in which clients get errors."""

    error: ErrorDetail


def error_body(
    message: str, *, kind: str, param: str | None = None, code: str | None = None
) -> bytes:
    """JSON of an error in OpenAI's shape (API reference, "Error codes")."""
    detail = ErrorDetail(message=message, type=kind, param=param, code=code)
    return msgspec.json.encode(ErrorBody(error=detail))
