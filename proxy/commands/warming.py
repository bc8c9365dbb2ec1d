"""The lines of a file to warm a cache with, and what became of them."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET, Raw, UnsetType

from proxy.call import Directives
from proxy.commands.adminapi import Problem
from proxy.commands.failure import MISUSED, CommandFailed
from proxy.journal.line import read_line
from proxy.request.headers import OF_TRACES, forwarded
from proxy.request.wire import edit, members

_PASSING = (408, 429)
"""Refusals that say nothing of the request."""
_HOPS_OWN = frozenset({b"via", b"accept-encoding"})


class Wish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: a request, with its answer if that is known. `path` is below `/v1`."""

    line: int
    request: Raw
    response: Raw | UnsetType = UNSET
    path: str = "/chat/completions"
    query: str = ""
    headers: dict[str, str] = {}
    tenant: str = ""
    """Who asked it, where a request log says so."""


class PassedOver(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a request log with which nothing is warmed, and why."""

    line: int
    reason: str


class Summary(msgspec.Struct, kw_only=True):
    """Requests: `hits` were in the cache, `misses` are now, where the policy lets them be stored,
    `bypassed` had nothing to do with it. Pairs: `stored` and `present`. Not frozen: it counts."""

    hits: int = 0
    misses: int = 0
    bypassed: int = 0
    passed_over: int = 0
    """Lines of a request log that are not asked again."""
    stored: int = 0
    present: int = 0
    failed: int = 0
    problems: list[Problem] = []

    def fail(self, line: int, reason: str) -> None:
        """Count a line that brought nothing."""
        self.failed += 1
        self.problems.append(Problem(line=line, reason=reason))


def wishes(file: Path) -> Iterator[Wish | Problem | PassedOver]:
    """The lines of a file, each checked by itself; empty ones do not count."""
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _wish(line, number)
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}", code=MISUSED) from None


class _Line(msgspec.Struct, kw_only=True):
    v: Raw | UnsetType = UNSET
    """Only lines of a request log have it."""
    request: Raw | UnsetType = UNSET
    response: Raw | UnsetType = UNSET
    path: str = "/chat/completions"
    headers: dict[str, str] = {}


def _wish(text: bytes, number: int) -> Wish | Problem | PassedOver:
    try:
        line = _LINES.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Problem(line=number, reason=f"not a request: {error}")
    if not isinstance(line.v, UnsetType):
        return _logged(text, number)
    if isinstance(line.request, UnsetType):
        if not isinstance(line.response, UnsetType):
            return Problem(line=number, reason="a response without its request")
        return Wish(line=number, request=Raw(text.strip()))
    return Wish(
        line=number,
        request=line.request,
        response=line.response,
        path="/" + line.path.removeprefix("/v1").lstrip("/"),
        headers=line.headers,
    )


def _logged(text: bytes, number: int) -> Wish | Problem | PassedOver:
    """A line of the request log (`proxy.journal`) as it was asked, but for its credential."""
    line = read_line(text)
    if line is None:
        return Problem(line=number, reason="a line of another version of the request log")
    if isinstance(line.request, UnsetType) or isinstance(line.directives, UnsetType):
        return PassedOver(line=number, reason="its words were not kept")
    if line.directives.no_store:
        return PassedOver(line=number, reason="its client wanted nothing to be stored")
    if 400 <= line.status < 500 and line.status not in _PASSING:
        return PassedOver(line=number, reason=f"it was refused: {line.status}")
    cache = _directives(line.directives)
    request = bytes(line.request)
    if cache:
        replace = {"cache": msgspec.json.encode(cache)}
        request = edit(members(request), remove=(), replace=replace)
    return Wish(
        line=number,
        request=Raw(request),
        path=line.path,
        query=line.query,
        headers=_asked_again(line.headers),
        tenant=line.tenant,
    )


def _directives(said: Directives) -> dict[str, object]:
    """The body's `cache` object, as far as it is about what is stored: a request that wanted a new
    answer, or one from the cache alone, does not want it again."""
    cache: dict[str, object] = {}
    if said.ttl_s is not None:
        cache["ttl"] = said.ttl_s
    if said.namespace:
        cache["namespace"] = said.namespace
    if said.tags:
        cache["tags"] = said.tags
    if not said.semantic:
        cache["semantic"] = False
    return cache


def _asked_again(headers: dict[str, str]) -> dict[str, str]:
    """Those that an upstream would get too, without the hop's own and the ids of that request."""
    raw = tuple((name.encode("latin-1"), text.encode("latin-1")) for name, text in headers.items())
    left = {name for name, _ in forwarded(raw, via=b"")} - OF_TRACES - _HOPS_OWN
    return {name: text for name, text in headers.items() if name.encode("latin-1") in left}


_LINES = msgspec.json.Decoder(_Line)
