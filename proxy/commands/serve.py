"""`rejoinder serve`: run the proxy."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from proxy.commands.check import check
from proxy.commands.output import note


def serve(file: Path, /, *, check_only: Annotated[bool, Parameter(name="--check")] = False) -> int:
    """Run the proxy until SIGTERM or Ctrl-C.

    Reads the config first; mistakes are said at once, each with its line, and the exit code is then
    2. A model that turns out not to run is an upstream that is down (`/readyz` names it): stored
    answers are given all the same. `rejoinder check` tells of it before. Relative paths in the
    config count from the current folder.

    **Examples**

        rejoinder serve configs/quickstart.yaml

        rejoinder serve configs/quickstart.yaml --check

    Parameters
    ----------
    file
        The config file (YAML).
    check_only
        Only check the config, as `rejoinder check` does.
    """
    if check_only:
        return check(file)
    from proxy.settings.file import parse, text_of

    # Before the server's own imports: a mistake in the config is told at once.
    text = text_of(file)
    loaded = parse(file, text, environ=os.environ)
    for warning in loaded.warnings:
        note(f"warning: {warning}")

    if loaded.config.workers > 1:
        from proxy.processes.supervisor import run as run_workers

        return run_workers(file, text, loaded.config, say=note)
    from proxy.processes.single import run

    return run(file, text, loaded.config, say=note)
