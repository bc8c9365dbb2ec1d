"""What an upstream says of the keeping of its answer: `Cache-Control` (where the config honours it)
and `Vary` (always). RFC 9111, sections 4.1 and 5.2.2. Pure."""

import hashlib
from collections.abc import Collection, Iterator

import msgspec

from proxy.call import Headers
from proxy.tenancy.tenants import CREDENTIAL_HEADERS

_CONSTANT = frozenset({b"accept-encoding", b"cookie"})
"""The same in every request that goes upstream: set by us, or never sent."""
_DIGEST_BYTES = 16


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """`lifetime_s`: how long the answer is fresh, None where the upstream does not say."""

    no_store: bool = False
    lifetime_s: float | None = None


def control_of(headers: Headers, honour: Collection[str]) -> Control:
    """The directives of an answer that are honoured. `s-maxage` counts before `max-age`, for a
    cache of many readers; what the answer's `Age` says has passed is taken off."""
    if not honour:
        return Control()
    said = dict(_directives(headers))
    lifetime_s: float | None = None
    if "max-age" in honour:
        spelled = said.get("s-maxage", said.get("max-age"))
        if spelled is not None:
            # What is not a number of seconds is taken for none left (section 4.2.1).
            lifetime_s = float(spelled[:9]) if spelled.isdecimal() else 0.0
            lifetime_s = max(0.0, lifetime_s - _age_s(headers))
    return Control(no_store="no-store" in honour and "no-store" in said, lifetime_s=lifetime_s)


def varied_by(response: Headers, request: Headers, *, own_credential: bool) -> Headers | None:
    """The request headers that `Vary` names, each with a digest of what this request said.

    None: no request is sure to get the same answer (`*`, or the credential, unless each credential
    has entries of its own anyway).
    """
    names = {
        name.strip().lower()
        for header, value in response
        if header == b"vary"
        for name in value.split(b",")
    } - {b"", *_CONSTANT}
    if own_credential:
        names -= set(CREDENTIAL_HEADERS)
    if b"*" in names or not names.isdisjoint(CREDENTIAL_HEADERS):
        return None
    return tuple((name, _digest(name, request)) for name in sorted(names))


def fits(varied: Headers, request: Headers) -> bool:
    """The request says the same in all headers that the answer varies by."""
    return all(_digest(name, request) == digest for name, digest in varied)


def _directives(headers: Headers) -> Iterator[tuple[str, str]]:
    for name, value in headers:
        if name == b"cache-control":
            for directive in value.decode("latin-1").split(","):
                what, _, argument = directive.partition("=")
                yield what.strip().lower(), argument.strip().strip('"')


def _age_s(headers: Headers) -> float:
    for name, value in headers:
        if name == b"age" and value.isdigit():
            return float(value[:9])
    return 0.0


def _digest(name: bytes, request: Headers) -> bytes:
    values = [value.strip() for header, value in request if header == name]
    return hashlib.sha256(b"%d:" % len(values) + b",".join(values)).digest()[:_DIGEST_BYTES]
