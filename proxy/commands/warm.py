"""`rejoinder warm`: fill the cache before the clients come."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number
from msgspec import UnsetType

from proxy.commands.adminapi import Problem, Tally
from proxy.commands.connection import LOCAL, Connection
from proxy.commands.failure import FAILED, OK
from proxy.commands.output import note, print_json, print_line
from proxy.commands.progress import progress
from proxy.commands.warming import Summary, Wish, wishes

_MAX_SHOWN = 20


def warm(
    file: Path,
    /,
    *,
    url: str = "http://127.0.0.1:8080/v1",
    api_key: Annotated[str, Parameter(env_var="OPENAI_API_KEY", show_default=False)] = "",
    concurrency: Annotated[int, Parameter(validator=Number(gte=1, lte=1000))] = 4,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    connection: Connection = LOCAL,
) -> int:
    """Fill the cache from a file of JSON lines.

    A line is the body of a chat request, or {"request": body}, beside which "path" (below /v1) and
    "headers" may stand: it is sent to the proxy as a client would send it. Or it is a pair,
    {"request": body, "response": body}: its answer is stored through the admin port without asking
    an upstream, under the rules of an answer that has just come.

    Answers belong to the tenant of the key, unless the policy shares them. What is cached costs
    nothing at the upstream, so a run that was broken off is simply begun again. The exit code is 1
    if a line failed.

    **Examples**

        rejoinder warm questions.jsonl --api-key sk-mine

        rejoinder warm pairs.jsonl --admin http://127.0.0.1:8081

        rejoinder warm questions.jsonl --url http://10.0.0.7:8080/v1 --concurrency 16 --json

    Parameters
    ----------
    file
        The lines.
    url
        The data port, with /v1.
    api_key
        The client's key.
    concurrency
        Requests under way at a time.
    as_json
        Print a JSON summary instead.
    """
    summary = Summary()
    keyed = {"authorization": f"Bearer {api_key}"} if api_key else {}
    total = 0
    with progress("reading") as advance:
        for wish in wishes(file):
            advance(1)
            total += 1
            if isinstance(wish, Problem):
                summary.fail(wish.line, wish.reason)
    with progress("warming", total=total - summary.failed) as advance:
        _send_pairs(_pairs(file, keyed, advance), connection, summary)
        # Imported where it is needed: httpx comes with it.
        from proxy.commands.sending import Sender

        sender = Sender(url, headers=keyed, summary=summary, advance=advance)
        asyncio.run(sender.send_all(_requests(file), concurrency=concurrency))
    if as_json:
        print_json(msgspec.json.encode(summary))
    else:
        _print(summary)
    return FAILED if summary.failed else OK


def _pairs(file: Path, keyed: dict[str, str], advance: Callable[[int], None]) -> Iterator[bytes]:
    for wish in wishes(file):
        if isinstance(wish, Wish) and not isinstance(wish.response, UnsetType):
            headers = {**keyed, **{name.lower(): value for name, value in wish.headers.items()}}
            yield msgspec.json.encode(msgspec.structs.replace(wish, headers=headers)) + b"\n"
            advance(1)


def _requests(file: Path) -> Iterator[Wish]:
    for wish in wishes(file):
        if isinstance(wish, Wish) and isinstance(wish.response, UnsetType):
            yield wish


def _send_pairs(pairs: Iterator[bytes], connection: Connection, summary: Summary) -> None:
    first = next(pairs, None)
    if first is None:
        return
    from proxy.commands.adminclient import AdminClient

    def lines() -> Iterator[bytes]:
        yield first
        yield from pairs

    client = AdminClient(connection)
    tally = client.decoded(client.upload("/cache/pairs", lines()), Tally)
    summary.stored, summary.present = tally.stored, tally.present
    summary.failed += tally.refused
    summary.problems += tally.problems


def _print(summary: Summary) -> None:
    for problem in sorted(summary.problems, key=lambda one: one.line)[:_MAX_SHOWN]:
        note(f"line {problem.line}: {problem.reason}")
    if summary.failed > _MAX_SHOWN:
        note(f"and more: {summary.failed:,} lines failed")
    print_line(
        f"requests: {summary.hits:,} hits, {summary.misses:,} misses, "
        f"{summary.bypassed:,} not cached; pairs: {summary.stored:,} stored, "
        f"{summary.present:,} were there; {summary.failed:,} failed"
    )
