"""The lines of a log that can be asked again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from proxy.auditing.tier import KNOWN_WRONG
from proxy.call import Call, Caller, Directives, Surface
from proxy.errors import ClientError
from proxy.journal.line import read_line, remembered_of
from proxy.observing.recollection import Recollection, call_of

_TENANT = "log"
_BATCH_URL = "/v1"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and what its answer took as far as the log says."""

    call: Call
    input_tokens: int = 0
    output_tokens: int = 0
    has_time: bool
    wrong_with: tuple[str, ...] = ()
    """Stored questions that were known not to share an answer with this one, by audits or
    feedback, when it was asked."""


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """A line that cannot be asked again; `line` counts from 1. `older`: of the file before."""

    line: int
    reason: str
    older: bool = False


def read(path: Path) -> Iterator[Entry | Unread]:
    """Lines of the request log with their bodies, of OpenAI's batch files (`{"url", "body"}`), or
    bodies alone. Those of the older file that the request log keeps beside it, `PATH.1`, come
    first. Raises OSError."""
    older = path.with_name(f"{path.name}.1")
    if older.is_file():
        for one in _read_file(older):
            yield msgspec.structs.replace(one, older=True) if isinstance(one, Unread) else one
    yield from _read_file(path)


def _read_file(path: Path) -> Iterator[Entry | Unread]:
    with path.open("rb") as lines:
        for number, text in enumerate(lines, start=1):
            if text.strip():
                yield _read(text.strip(), number)


def _read(text: bytes, number: int) -> Entry | Unread:
    line = read_line(text)
    if line is not None:
        remembered = remembered_of(line)
        if remembered is None:
            return Unread(line=number, reason="without its body (`record: {bodies: true}`)")
        entry = _entry(
            remembered.asked, number, tokens=(line.input_tokens, line.output_tokens), has_time=True
        )
        wrong_with = tuple(near.prompt for near in line.near if near.reason == KNOWN_WRONG)
        return (
            entry
            if isinstance(entry, Unread)
            else msgspec.structs.replace(entry, wrong_with=wrong_with)
        )
    try:
        told = _told(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Unread(line=number, reason=f"not a request: {error}")
    return _entry(told, number, tokens=(0, 0), has_time=False)


def _entry(
    told: Recollection, number: int, *, tokens: tuple[int, int], has_time: bool
) -> Entry | Unread:
    try:
        call = call_of(told)
    except ClientError as error:
        return Unread(line=number, reason=error.message)
    return Entry(call=call, input_tokens=tokens[0], output_tokens=tokens[1], has_time=has_time)


def _told(text: bytes) -> Recollection:
    """Raises MsgspecError."""
    fields: dict[str, Any] = _OBJECT.decode(text)
    body: Any = next(
        (fields[k] for k in ("body", "request") if isinstance(fields.get(k), dict)), fields
    )
    path = str(fields.get("url") or fields.get("path") or Surface.CHAT.value)
    return Recollection(
        request_id=str(fields.get("custom_id", "")),
        received_at=0.0,
        path=path.removeprefix(_BATCH_URL),
        caller=Caller(tenant=_TENANT, credential_id=""),
        directives=Directives(),
        request=Raw(msgspec.json.encode(body)),
    )


_OBJECT = msgspec.json.Decoder(dict[str, Any])
