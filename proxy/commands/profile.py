"""`rejoinder profile`: where the bundled engine's time goes."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from proxy.commands.connection import LOCAL, Connection
from proxy.commands.failure import OK, CommandFailed
from proxy.commands.output import count, note, print_json, print_line, size


def profile(
    *,
    upstream: str | None = None,
    steps: Annotated[int, Parameter(validator=Number(gte=1, lte=1000))] = 50,
    seconds: Annotated[float, Parameter(validator=Number(gt=0, lte=45))] = 30.0,
    out: Path = Path("rejoinder-trace.json.gz"),
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    connection: Connection = LOCAL,
) -> int:
    """Trace some steps of a running engine, and print where their time went.

    The trace opens in https://ui.perfetto.dev or in chrome://tracing. It needs requests under way:
    of an idle engine, which makes no steps, there is none, and the exit code is 1.

    **Examples**

        rejoinder profile

        rejoinder profile --upstream local --steps 20 --out decode.json.gz

    Parameters
    ----------
    upstream
        Its name in the config; not needed where there is one engine.
    steps
        The number of steps.
    seconds
        Wait no longer for them.
    out
        The file for the trace, a gzip of Chrome's JSON.
    as_json
        Print `{"upstream", "num_steps", "steps_s", "phases", "trace"}`: seconds, and the file.
    """
    from proxy.commands.adminapi import Profile
    from proxy.commands.adminclient import AdminClient

    client = AdminClient(connection)
    body = client.profile(upstream=upstream, steps=steps, seconds=seconds)
    done = client.decoded(body, Profile)
    if not done.num_steps:
        raise CommandFailed(f"{done.upstream}: no steps were run in {seconds:g} s: it was idle")
    try:
        out.write_bytes(done.trace)
    except OSError as error:
        raise CommandFailed(f"{out} cannot be written: {error}") from error
    if as_json:
        print_json(msgspec.json.encode({**msgspec.structs.asdict(done), "trace": str(out)}))
        return OK
    print_line(f"{done.upstream}: {count(done.num_steps, 'step')}, {done.steps_s:.3f} s")
    _print_phases(done.phases, done.steps_s)
    note(f"trace: {out} ({size(len(done.trace))})")
    return OK


def _print_phases(phases: Mapping[str, float], steps_s: float) -> None:
    for name, seconds in sorted(phases.items(), key=lambda item: -item[1]):
        sys.stdout.write(f"  {name:12}{seconds * 1000:12,.1f} ms{seconds / steps_s:8.1%}\n")
