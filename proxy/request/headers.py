"""Which headers go where. Names are in lower case, as ASGI gives them.

Request headers, from the client to the upstream:

- not forwarded: hop-by-hop ones and what `Connection` names; `Host`, `Content-Length` and `Expect`,
  which belong to one hop; credentials (they travel apart, `UpstreamRequest.credential`); `Cookie`;
  our own, to which `Cache-Control` and `Pragma` belong, since this cache is the one they speak to;
  `x-stainless-*`, which describe a client's machine;
- forwarded and in the key: everything else but the neutral ones, known to us or not;
- neutral: forwarded, but of no consequence for the answer. What tracing libraries add to each
  request of a process, anew every time, what `fetch` adds in Node and in browsers, and how the
  request came to us. Whatever may say who asks is not among them: `x-forwarded-user` and its like
  count, and so does `baggage`, but for the members that Sentry puts there for itself.

Response headers, from the upstream to the client: `passed_on` with a live answer; `recorded` is the
short list of those that a replay may repeat.
"""

import hashlib
import re

from proxy.call import Headers
from proxy.tenancy.tenants import CREDENTIAL_HEADERS

_HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"http2-settings",
    b"proxy-authentication-info",
})  # fmt: skip
_NOT_FORWARDED = _HOP_BY_HOP | {*CREDENTIAL_HEADERS} | {
    b"host", b"content-length", b"expect", b"cookie", b"cache-control", b"pragma",
    b"accept-encoding", b"via",
}  # fmt: skip
_NOT_FORWARDED_PREFIXES = (b"x-stainless-", b"x-cache-", b"x-rejoinder-", b"proxy-")
OF_TRACES = frozenset({
    b"x-request-id", b"x-client-request-id", b"x-correlation-id", b"traceparent", b"tracestate",
    b"sentry-trace", b"b3", b"x-b3-traceid", b"x-b3-spanid", b"x-b3-parentspanid",
    b"uber-trace-id", b"newrelic", b"elastic-apm-traceparent", b"x-amzn-trace-id",
    b"x-cloud-trace-context", b"x-datadog-trace-id", b"x-datadog-parent-id", b"x-datadog-tags",
})  # fmt: skip
"""Neutral ones that are new with each request."""
_NEUTRAL = OF_TRACES | {
    b"accept", b"user-agent", b"forwarded", b"x-forwarded-for", b"x-forwarded-proto",
    b"x-forwarded-protocol", b"x-forwarded-scheme", b"x-forwarded-ssl", b"x-forwarded-host",
    b"x-forwarded-port", b"x-forwarded-prefix", b"x-forwarded-server", b"x-forwarded-by",
}  # fmt: skip
_NEUTRAL_PREFIXES = (b"x-b3-", b"x-datadog-", b"sec-fetch-")
_SENTRYS_OWN = b"sentry-"
_NOT_COUNTED = _NOT_FORWARDED | _NEUTRAL
_NOT_COUNTED_PREFIXES = (*_NOT_FORWARDED_PREFIXES, *_NEUTRAL_PREFIXES)
_PLAIN_JSON = frozenset({
    b"application/json", b"application/json; charset=utf-8", b"application/json;charset=utf-8",
})  # fmt: skip

_NOT_PASSED_ON = _HOP_BY_HOP | {
    b"content-length", b"date", b"age", b"server", b"alt-svc", b"set-cookie", b"x-request-id",
    b"x-cache",
}  # fmt: skip
_UNSENDABLE_NAME = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9A-Za-z]|^$")
_UNSENDABLE_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""RFC 9110, section 5: what an upstream may get past a parser, but no server of ours sends."""
_RECORDED = frozenset({b"content-language", b"openai-version", b"openai-model"})


def counted(headers: Headers) -> Headers:
    """What of a request's headers belongs to its key, sorted; order and case of names don't count.

    A content type that says JSON counts as none: it is what every body was decoded as. So does
    `Accept-Language: *`, which asks for nothing (RFC 9110, section 12.5.4).
    """
    found = [
        (name, value)
        for name, value in headers
        if name not in _NOT_COUNTED
        and not name.startswith(_NOT_COUNTED_PREFIXES)
        and not (name == b"content-type" and value.strip().lower() in _PLAIN_JSON)
        and not (name == b"accept-language" and value.strip() == b"*")
        and not is_sentrys_own(name, value)
    ]
    if not found:
        return ()
    found = [(n, _without_sentrys(value) if n == b"baggage" else value) for n, value in found]
    named = _named_by_connection(headers)
    return tuple(sorted(header for header in found if header[0] not in named))


def forwarded(headers: Headers, *, via: bytes) -> Headers:
    """The request headers for the upstream. `via` is our own token (`pseudonym`).

    No compression is asked for: answers are read on their way.
    """
    named = _named_by_connection(headers)
    kept = [
        (name, value)
        for name, value in headers
        if name not in _NOT_FORWARDED
        and not name.startswith(_NOT_FORWARDED_PREFIXES)
        and name not in named
    ]
    hops = [value for name, value in headers if name == b"via"]
    kept.append((b"via", b", ".join([*hops, b"1.1 " + via])))
    kept.append((b"accept-encoding", b"identity"))
    return tuple(kept)


def passed_on(headers: Headers) -> Headers:
    """The upstream's response headers for a client that waits for this very answer.

    Rate limits and `Retry-After` go through unchanged. Cookies end here, as none are ever sent
    upstream; the upstream's request id gets another name, as ours takes its place.
    """
    named = _named_by_connection(headers)
    kept = [
        (name, value)
        for name, value in headers
        if name not in _NOT_PASSED_ON
        and not name.startswith(_NOT_FORWARDED_PREFIXES)
        and name not in named
    ]
    kept += [
        (b"x-upstream-request-id", value) for name, value in headers if name == b"x-request-id"
    ]
    return tuple(header for header in kept if _is_sendable(header))


def recorded(headers: Headers) -> Headers:
    """The response headers that are kept with an answer.

    A list of what may stay, not of what may not: request ids, rate limits, dates, cookies, timings,
    costs and names of organisations belong to one exchange, and new ones of their kind appear.
    """
    return tuple(header for header in headers if header[0] in _RECORDED and _is_sendable(header))


def pseudonym(secret: bytes) -> bytes:
    """Our token for `Via`. All replicas of one store share it; two proxies in a row differ."""
    return b"rejoinder-" + hashlib.sha256(b"via:" + secret).hexdigest()[:12].encode()


def is_looping(headers: Headers, *, via: bytes) -> bool:
    """Whether the request has been here before (RFC 9110, section 7.6.3)."""
    return any(name == b"via" and via in value for name, value in headers)


def is_sentrys_own(name: bytes, value: bytes) -> bool:
    """Whether it is baggage with nothing in it but what Sentry carries from trace to trace."""
    return name == b"baggage" and not _without_sentrys(value)


def _without_sentrys(baggage: bytes) -> bytes:
    """Without what Sentry carries from trace to trace (W3C Baggage: members between commas)."""
    members = map(bytes.strip, baggage.split(b","))
    return b",".join(one for one in members if not one.startswith(_SENTRYS_OWN))


def _is_sendable(header: tuple[bytes, bytes]) -> bool:
    name, value = header
    return not _UNSENDABLE_NAME.search(name) and not _UNSENDABLE_VALUE.search(value)


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    named = [value for name, value in headers if name == b"connection"]
    if not named or named == [b"keep-alive"]:
        return frozenset()
    return frozenset(token.strip().lower() for value in named for token in value.split(b","))
