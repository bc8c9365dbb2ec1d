"""`rejoinder import-litellm`: a config of ours from LiteLLM's."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from proxy.commands.failure import FAILED, MISUSED, OK, PARTIAL, CommandFailed
from proxy.commands.output import note, print_json, print_line
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from proxy.litellm.section import Remark
    from proxy.litellm.translation import Translation

_VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)\}")
_UNSET = "the environment has no "


def import_litellm(
    file: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Write a config of Rejoinder's from one of LiteLLM's proxy.

    Taken over are models with their servers, keys, weights, aliases, fallbacks, retries and times,
    the cache and the master key; a comment stands beside each choice. What has no counterpart, or
    works in another way, is told on standard error and in comments.

    Exit code 0: everything was taken over; 3: something was not; 2: the file is no config of
    LiteLLM's.

    **Examples**

        rejoinder import-litellm config.yaml > rejoinder.yaml

        rejoinder import-litellm config.yaml --output rejoinder.yaml

    Parameters
    ----------
    file
        LiteLLM's config.
    output
        Write it to this file, readable by you alone, which must not exist. Else to standard output.
    as_json
        Print `{"config", "remarks", "variables", "problems"}` instead; `variables` must be set in
        the environment before it starts.
    """
    translation = _translated(file)
    variables, problems = _missing(output or Path("rejoinder.yaml"), translation.text)
    if output is not None:
        _write(output, translation.text)
    if as_json:
        _print_json(translation, variables, problems)
    else:
        if output is None:
            print_line(translation.text.rstrip("\n"))
        _tell(translation.remarks, variables, problems)
    return PARTIAL if problems or any(one.left_out for one in translation.remarks) else OK


def _translated(file: Path) -> "Translation":
    from proxy.litellm.translation import translate
    from proxy.settings.file import text_of

    try:
        return translate(text_of(file), name=file.name)
    except ConfigError as error:
        named = (one if str(file) in one else f"{file}: {one}" for one in error.problems)
        raise CommandFailed("\n".join(named), code=MISUSED) from None


def _print_json(translation: "Translation", variables: list[str], problems: list[str]) -> None:
    report = {
        "config": translation.text,
        "remarks": translation.remarks,
        "variables": variables,
        "problems": problems,
    }
    print_json(msgspec.json.encode(report))


def _tell(remarks: "tuple[Remark, ...]", variables: list[str], problems: list[str]) -> None:
    for remark in remarks:
        note(f"{'left out' if remark.left_out else 'differs'}: {remark.where}: {remark.message}")
    for problem in problems:
        note(f"to do: {problem}")
    if variables:
        note(f"to do: set in the environment: {', '.join(variables)}")


def _missing(path: Path, text: str) -> tuple[list[str], list[str]]:
    """Variables that are not set, and what else `rejoinder check` finds."""
    from proxy.settings.file import parse

    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    named = dict.fromkeys(_VARIABLE.findall("\n".join(lines)))
    variables = [name for name in named if name not in os.environ]
    try:
        parse(path, text, environ=os.environ)
    except ConfigError as error:
        return variables, [problem for problem in error.problems if _UNSET not in problem]
    return variables, []


def _write(path: Path, text: str) -> None:
    """Keys may stand in it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}", code=FAILED) from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
