"""`rejoinder import`: what was exported, back into the cache."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

from cyclopts import Parameter

from proxy.commands.adminapi import Tally
from proxy.commands.connection import LOCAL, Connection
from proxy.commands.failure import FAILED, MISUSED, OK, CommandFailed
from proxy.commands.output import count, note, print_json, print_line
from proxy.commands.progress import progress


def import_(
    file: Path,
    /,
    *,
    lenient: bool = False,
    as_of_now: bool = False,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    connection: Connection = LOCAL,
) -> int:
    """Store what `rejoinder export` wrote. What is there already is passed by: an import that was
    broken off is simply begun again.

    Nothing comes back that was purged since it was made. Refused, each with its line, are entries
    that were purged, altered, or exported from a store with another secret, whose keys cannot be
    found here. The exit code is 1 if a line was refused.

    **Examples**

        rejoinder import backup.jsonl

        rejoinder import backup.jsonl --lenient --json

    Parameters
    ----------
    file
        The export.
    lenient
        Refused lines do not make the command fail.
    as_of_now
        Also take entries where this store does not know what was purged since the export, as after
        its counters were lost. Only when you know that nothing was.
    as_json
        Print the server's JSON instead.
    """
    from proxy.commands.adminclient import AdminClient

    client = AdminClient(connection)
    try:
        with (
            file.open("rb") as lines,
            progress("importing", total=file.stat().st_size) as advance,
        ):
            body = client.upload("/cache/import", _read(lines, advance), as_of_now=as_of_now)
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}", code=MISUSED) from None
    tally = client.decoded(body, Tally)
    if not tally.ended:
        note(f"warning: {file} is not a whole export: it has no mark at its end")
    if as_json:
        print_json(body)
    else:
        print_tally(tally)
    return FAILED if tally.refused and not lenient else OK


def print_tally(tally: Tally) -> None:
    """The counts, and beside them the lines that were refused."""
    for problem in tally.problems:
        note(f"line {problem.line}: {problem.reason}")
    if tally.refused > len(tally.problems):
        note(f"and {tally.refused - len(tally.problems):,} more")
    print_line(
        f"stored {count(tally.stored, 'answer')}; {tally.present:,} were there, "
        f"{tally.expired:,} had expired, {tally.refused:,} refused"
    )


def _read(file: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes]:
    while piece := file.read(2**18):
        yield piece
        advance(len(piece))
