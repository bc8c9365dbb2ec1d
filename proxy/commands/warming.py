"""The lines of a file to warm a cache with, and what became of them."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET, Raw, UnsetType

from proxy.commands.adminapi import Problem
from proxy.commands.failure import CommandFailed


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """One line: a request, with its answer if that is known. `path` is below `/v1`."""

    line: int
    request: Raw
    response: Raw | UnsetType = UNSET
    path: str = "/chat/completions"
    headers: dict[str, str] = {}


class Summary(msgspec.Struct, kw_only=True):
    """Requests: `hits` were in the cache, `misses` are now, where the policy lets them be stored,
    `bypassed` had nothing to do with it. Pairs: `stored` and `present`. Not frozen: it counts."""

    hits: int = 0
    misses: int = 0
    bypassed: int = 0
    stored: int = 0
    present: int = 0
    failed: int = 0
    problems: list[Problem] = []

    def fail(self, line: int, reason: str) -> None:
        """Count a line that brought nothing."""
        self.failed += 1
        self.problems.append(Problem(line=line, reason=reason))


def wishes(file: Path) -> Iterator[Wish | Problem]:
    """The lines of a file, each checked by itself; empty ones do not count."""
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _wish(line, number)
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}") from None


class _Line(msgspec.Struct, kw_only=True):
    request: Raw | UnsetType = UNSET
    response: Raw | UnsetType = UNSET
    path: str = "/chat/completions"
    headers: dict[str, str] = {}


def _wish(text: bytes, number: int) -> Wish | Problem:
    try:
        line = _LINES.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Problem(line=number, reason=f"not a request: {error}")
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


_LINES = msgspec.json.Decoder(_Line)
