"""`rejoinder export`: what the cache holds, into a file."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
from cyclopts import Parameter

from proxy.commands.connection import LOCAL, Connection
from proxy.commands.failure import MISUSED, OK, CommandFailed
from proxy.commands.output import count, note, print_json
from proxy.commands.progress import progress

_LONGEST_MARK_BYTES = 4096


def export(
    file: Path | None = None,
    /,
    *,
    tag: str | None = None,
    model: str | None = None,
    tenant: str | None = None,
    embeddings: Annotated[bool, Parameter(negative="--no-embeddings")] = True,
    readable: bool = False,
    resume: bool = False,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    connection: Connection = LOCAL,
) -> int:
    """Write stored answers as JSON lines, newest first. All given filters must hold.

    The lines can be imported into the same store or a copy of it, not into a store that was made by
    itself: keys are made with a secret of the store, which is not exported, and of more than an
    entry holds. Marks between the lines say how far the export has come; the last one has a null
    cursor. The file has your users' questions and answers; only you may read it.

    **Examples**

        rejoinder export backup.jsonl

        rejoinder export backup.jsonl --resume

        rejoinder export --tag doc:42 --readable | jq .answer

    Parameters
    ----------
    file
        Where to write; standard output without it.
    tag
        Only those that depend on this tag.
    model
        Only those of this model.
    tenant
        Only those of this tenant.
    embeddings
        With their vectors. Without them what is imported is found by the same words only.
    readable
        Add request and answer as JSON, for other programs; an import passes them by.
    resume
        Go on with a file that was broken off, with the same filters.
    as_json
        Print `{"file", "entries"}` when it is done: how many were written now. Needs the file.
    """
    from proxy.commands.adminclient import AdminClient

    if file is None and (resume or as_json):
        needs = "--resume needs the file to go on with" if resume else "--json needs a file"
        raise CommandFailed(needs, code=MISUSED)
    cursor = _cut_to_last_mark(file) if resume and file is not None else ""
    if cursor is None:
        note(f"{file} is whole: nothing to go on with")
        return _done(file, 0, as_json=as_json)
    client = AdminClient(connection)
    filters = {"tag": tag, "model": model, "tenant": tenant, "cursor": cursor or None}
    options = {"embeddings": None if embeddings else False, "readable": readable or None}
    total = None if any(filters.values()) else _held(client.stats())
    with (
        client.export({**filters, **options}) as pieces,
        _opened(file, append=resume) as out,
        progress("exporting", total=total) as advance,
    ):
        written = _copy(pieces, out, advance)
    if not written.ended:
        raise CommandFailed("the export broke off; --resume goes on with a file")
    if not as_json:
        note(f"exported {count(written.entries, 'answer')}")
    return _done(file, written.entries, as_json=as_json)


def _done(file: Path | None, num_entries: int, *, as_json: bool) -> int:
    if as_json:
        print_json(msgspec.json.encode({"file": str(file), "entries": num_entries}))
    return OK


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    entries: int
    ended: bool


def _copy(pieces: Iterator[bytes], out: BinaryIO, advance: Callable[[int], None]) -> _Written:
    from proxy.transfer.line import read_mark

    entries, rest, ended = 0, b"", False
    for piece in pieces:
        out.write(piece)
        *lines, rest = (rest + piece).split(b"\n")
        marks = [m for m in map(read_mark, filter(_may_be_mark, lines)) if m is not None]
        ended = bool(marks) and marks[-1].cursor is None
        entries += len(lines) - len(marks)
        advance(len(lines) - len(marks))
    return _Written(entries=entries, ended=ended)


def _may_be_mark(line: bytes) -> bool:
    return len(line) < _LONGEST_MARK_BYTES


def _cut_to_last_mark(file: Path) -> str | None:
    """Where to go on: what came after the last mark is cut off. None when the export is whole, an
    empty text for the beginning."""
    from proxy.transfer.line import read_mark

    end, cursor, at = 0, "", 0
    try:
        with file.open("rb+") as lines:
            for line in lines:
                at += len(line)
                mark = read_mark(line) if line.endswith(b"\n") and _may_be_mark(line) else None
                if mark is not None:
                    if mark.cursor is None:
                        return None
                    end, cursor = at, mark.cursor
            lines.truncate(end)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise CommandFailed(f"cannot go on with {file}: {error.strerror}") from None
    return cursor


@contextlib.contextmanager
def _opened(file: Path | None, *, append: bool) -> Iterator[BinaryIO]:
    if file is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
    try:
        with os.fdopen(os.open(file, flags, 0o600), "wb") as out:
            yield out
    except OSError as error:
        raise CommandFailed(f"cannot write {file}: {error.strerror}") from None


def _held(stats: bytes) -> int | None:
    try:
        return msgspec.json.decode(stats, type=_Stats).store.entries
    except msgspec.MsgspecError:
        return None


class _StoreStats(msgspec.Struct):
    entries: int


class _Stats(msgspec.Struct):
    store: _StoreStats
