"""`rejoinder check`: would this config work here?"""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from proxy.commands.failure import MISUSED, OK
from proxy.commands.output import count, note, print_json, print_line


def check(file: Path, /, *, as_json: Annotated[bool, Parameter(name="--json")] = False) -> int:
    """Check a config file without starting anything.

    Every mistake is one line, FILE:LINE: PATH: WHAT, on standard error. Exit code 0: it works
    here (warnings may be shown); 2: it cannot.

    **Examples**

        rejoinder check configs/quickstart.yaml

        rejoinder check configs/quickstart.yaml --json

    Parameters
    ----------
    file
        The config file (YAML).
    as_json
        Print `{"ok", "problems", "warnings"}` instead.
    """
    import msgspec

    from proxy.errors import ConfigError
    from proxy.settings.file import read

    problems: list[str] = []
    warnings: tuple[str, ...] = ()
    summary = ""
    try:
        loaded = read(file, environ=os.environ)
        warnings = loaded.warnings
        config = loaded.config
        summary = (
            f"{count(len(config.upstreams), 'upstream')}, {count(len(config.routes), 'route')}"
        )
    except ConfigError as error:
        problems = error.problems
    if as_json:
        report = {"ok": not problems, "problems": problems, "warnings": warnings}
        print_json(msgspec.json.encode(report))
    else:
        for problem in problems:
            note(problem)
        for warning in warnings:
            note(f"warning: {warning}")
        if not problems:
            print_line(f"{file}: works ({summary})")
    return MISUSED if problems else OK
