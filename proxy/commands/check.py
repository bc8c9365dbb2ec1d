"""`rejoinder check`: would this config work here?"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from proxy.commands.failure import MISUSED, OK
from proxy.commands.output import count, note, print_json, print_line

if TYPE_CHECKING:
    from proxy.upstreams.local.plan import MemoryPlan


def check(file: Path, /, *, as_json: Annotated[bool, Parameter(name="--json")] = False) -> int:
    """Check a config file without starting anything.

    Every mistake is one line, FILE:LINE: PATH: WHAT, on standard error. Of each bundled engine
    the memory plan is shown: what a token takes in its KV cache, and what fits, beside a cache in
    fp16 and one that keeps keys and values for each query head. Exit code 0: it works here
    (warnings may be shown); 2: it cannot.

    **Examples**

        rejoinder check configs/quickstart.yaml

        rejoinder check configs/quickstart.yaml --json

    Parameters
    ----------
    file
        The config file (YAML).
    as_json
        Print `{"ok", "problems", "warnings", "engines"}` instead; `engines` has the memory plans.
    """
    import msgspec

    from proxy.commands.plans import plan_lines, plan_warnings, plans_of
    from proxy.errors import ConfigError
    from proxy.settings.file import read

    problems: list[str] = []
    warnings: tuple[str, ...] = ()
    summary = ""
    plans: dict[str, MemoryPlan | None] = {}
    try:
        loaded = read(file, environ=os.environ)
        warnings = loaded.warnings
        config = loaded.config
        summary = (
            f"{count(len(config.upstreams), 'upstream')}, {count(len(config.routes), 'route')}"
        )
        plans = plans_of(loaded)
        warnings = (*warnings, *plan_warnings(loaded, plans))
    except ConfigError as error:
        problems = error.problems
    if as_json:
        report = {"ok": not problems, "problems": problems, "warnings": warnings, "engines": plans}
        print_json(msgspec.json.encode(report))
        return MISUSED if problems else OK
    for line in (*problems, *(f"warning: {warning}" for warning in warnings)):
        note(line)
    if problems:
        return MISUSED
    print_line(f"{file}: works ({summary})")
    for name, plan in plans.items():
        for line in plan_lines(name, plan):
            print_line(line)
    return OK
