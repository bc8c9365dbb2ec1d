"""What a request says of the cache: headers, and the body's `cache` object (names as in LiteLLM).

Where both speak, the more careful one counts: flags and tags are joined, the shorter time is taken.
"""

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from index import tags as dependency_tags
from index.errors import InvalidTag
from proxy.call import Directives, Headers
from proxy.errors import ClientError
from proxy.settings.units import Duration

MAX_NAMESPACE_CHARS = 256

_NONE = Directives()
_OURS = frozenset({b"cache-control", b"x-cache-tags", b"x-cache-ttl", b"x-cache-namespace"})
_FLAGS = {"no-cache": "no_cache", "no-store": "no_store", "only-if-cached": "only_if_cached"}
_TIMES = {"max-age": "max_age_s", "max-stale": "max_stale_s"}
_BODY_FLAGS = {"no-cache": "no_cache", "no-store": "no_store"}
_BODY_TIMES = {"ttl": "ttl_s", "s-maxage": "max_age_s"}
_BODY = (*_BODY_TIMES, *_BODY_FLAGS, "namespace", "tags", "semantic")


def parse(headers: Headers, cache: object) -> Directives:
    """Read the directives. `cache` is the body's object, None without one.

    Raises `ClientError` 400 that names the header or the member (`cache.ttl`). Directives of
    `Cache-Control` that say nothing to this cache are skipped, as RFC 9111 wants; an unknown member
    of `cache` is refused, since it may be a `no-store` that was spelled wrongly.
    """
    said = [header for header in headers if header[0] in _OURS]
    if not said and cache is None:
        return _NONE
    found = _Found()
    for name, value in said:
        _read_header(found, name, _text(value))
    if cache is not None:
        _read_body(found, cache)
    return found.directives()


class _Found:
    """What was read so far."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._tags: set[str] = set()

    def flag(self, name: str) -> None:
        self._values[name] = True

    def time(self, name: str, value_s: float) -> None:
        self._values[name] = min(value_s, self._values.get(name, math.inf))

    def namespace(self, value: object, *, where: str) -> None:
        if not isinstance(value, str) or len(value) > MAX_NAMESPACE_CHARS:
            raise _wrong(where, f"a string of at most {MAX_NAMESPACE_CHARS} characters is expected")
        if self._values.setdefault("namespace", value) != value:
            raise _wrong(where, "header and body name different namespaces")

    def tags(self, values: Iterable[str], *, where: str) -> None:
        try:
            self._tags.update(dependency_tags.client_tags(values))
            dependency_tags.client_tags(self._tags)
        except InvalidTag as error:
            raise _wrong(where, str(error)) from None

    def no_semantic(self) -> None:
        self._values["semantic"] = False

    def directives(self) -> Directives:
        return Directives(tags=tuple(sorted(self._tags)), **self._values)


def _read_header(found: _Found, name: bytes, value: str) -> None:
    match name:
        case b"cache-control":
            _read_cache_control(found, value)
        case b"x-cache-ttl":
            found.time("ttl_s", _duration_s(value, where="X-Cache-TTL"))
        case b"x-cache-namespace":
            found.namespace(value, where="X-Cache-Namespace")
        case _:
            _read_tags(found, value, where="X-Cache-Tags")


def _text(value: bytes) -> str:
    """A header as text: UTF-8, as bodies are, so that both spell a name alike; else Latin-1."""
    try:
        return value.decode().strip()
    except UnicodeDecodeError:
        return value.decode("latin-1").strip()


def _read_cache_control(found: _Found, value: str) -> None:
    for directive in value.split(","):
        name, _, argument = directive.partition("=")
        name, argument = name.strip().lower(), argument.strip().strip('"')
        if name in _FLAGS:
            found.flag(_FLAGS[name])
        elif name in _TIMES:
            # RFC 9111, section 5.2.1.2: without a value, any staleness will do.
            endless = name == "max-stale" and not argument
            where = f"Cache-Control: {name}"
            found.time(_TIMES[name], math.inf if endless else _duration_s(argument, where=where))


def _read_body(found: _Found, cache: object) -> None:
    if not isinstance(cache, dict):
        raise _wrong("cache", "an object is expected")
    for name, value in cache.items():
        where = f"cache.{name}"
        if name not in _BODY:
            raise _wrong(where, f"unknown; there are {', '.join(_BODY)}")
        if value is not None:
            _read_member(found, name, value, where=where)


def _read_member(found: _Found, name: str, value: object, *, where: str) -> None:
    if name in _BODY_TIMES:
        found.time(_BODY_TIMES[name], _duration_s(value, where=where))
    elif name in _BODY_FLAGS:
        if _boolean(value, where=where):
            found.flag(_BODY_FLAGS[name])
    elif name == "semantic":
        if not _boolean(value, where=where):
            found.no_semantic()
    elif name == "namespace":
        found.namespace(value, where=where)
    elif isinstance(value, str):
        _read_tags(found, value, where=where)
    else:
        found.tags(_strings(value, where=where), where=where)


def _read_tags(found: _Found, text: str, *, where: str) -> None:
    try:
        tags = dependency_tags.parse(text)
    except InvalidTag as error:
        raise _wrong(where, str(error)) from None
    found.tags(tags, where=where)


def _duration_s(value: object, *, where: str) -> float:
    try:
        return float(Duration.parse(value))
    except (ValueError, OverflowError) as error:
        raise _wrong(where, str(error)) from None


def _boolean(value: object, *, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, "true or false is expected")
    return value


def _strings(value: object, *, where: str) -> list[str]:
    try:
        return msgspec.convert(value, list[str])
    except msgspec.ValidationError as error:
        raise _wrong(where, f"a list of strings is expected ({error})") from None


def _wrong(where: str, what: str) -> ClientError:
    return ClientError(400, f"Invalid '{where}': {what}.", param=where, code="invalid_value")
