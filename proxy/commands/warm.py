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
from proxy.commands.failure import FAILED, MISUSED, OK, CommandFailed
from proxy.commands.output import count, note, print_json, print_line
from proxy.commands.progress import progress
from proxy.commands.warming import Summary, Wish, wishes

_MAX_SHOWN = 20


def warm(
    file: Path,
    /,
    *,
    url: str = "http://127.0.0.1:8080/v1",
    tenant: str | None = None,
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

    The request log is such a file, where it keeps bodies. Its lines are asked again with their
    tags, namespace and lifetime; those whose client wanted nothing stored, that were refused, or
    whose words were not kept are passed over.

    Answers belong to the tenant of the key, unless the policy shares them. What is cached costs
    nothing at the upstream, so a run that was broken off is simply begun again. The exit code is 1
    if a line failed.

    **Examples**

        rejoinder warm questions.jsonl --api-key sk-mine

        rejoinder warm pairs.jsonl --admin http://127.0.0.1:8081

        rejoinder warm requests.jsonl --tenant acme --api-key sk-of-acme

        rejoinder warm questions.jsonl --url http://10.0.0.7:8080/v1 --concurrency 16 --json

    Parameters
    ----------
    file
        The lines.
    url
        The data port, with /v1.
    tenant
        Whose lines of a request log are asked again; needed where it has those of several.
    api_key
        The client's key.
    concurrency
        Requests under way at a time.
    as_json
        Print a JSON summary instead.
    """
    summary = Summary()
    keyed = {"authorization": f"Bearer {api_key}"} if api_key else {}
    total = _read(file, tenant, summary)
    with progress("warming", total=total) as advance:
        _send_pairs(_pairs(file, keyed, advance), connection, summary)
        # Imported where it is needed: httpx comes with it.
        from proxy.commands.sending import Sender

        sender = Sender(url, headers=keyed, summary=summary, advance=advance)
        asyncio.run(sender.send_all(_requests(file, tenant), concurrency=concurrency))
    if as_json:
        print_json(msgspec.json.encode(summary))
    else:
        _print(summary)
    return FAILED if summary.failed else OK


def _read(file: Path, tenant: str | None, summary: Summary) -> int:
    """How many lines there are to send; what is wrong with the others stands in `summary`."""
    total = 0
    tenants: set[str] = set()
    with progress("reading") as advance:
        for wish in wishes(file):
            advance(1)
            match wish:
                case Problem(line=line, reason=reason):
                    summary.fail(line, reason)
                case Wish(tenant=whose) if not whose or tenant in (None, whose):
                    total += 1
                    tenants.add(whose)
                case _:
                    summary.passed_over += 1
    if len(tenants - {""}) > 1:
        raise CommandFailed(
            f"{file} has requests of {len(tenants)} tenants, and a key is one tenant's: say with"
            f" --tenant whose are to be asked again ({', '.join(sorted(tenants)[:_MAX_SHOWN])})",
            code=MISUSED,
        )
    return total


def _pairs(file: Path, keyed: dict[str, str], advance: Callable[[int], None]) -> Iterator[bytes]:
    for wish in wishes(file):
        if isinstance(wish, Wish) and not isinstance(wish.response, UnsetType):
            headers = {**keyed, **{name.lower(): value for name, value in wish.headers.items()}}
            yield msgspec.json.encode(msgspec.structs.replace(wish, headers=headers)) + b"\n"
            advance(1)


def _requests(file: Path, tenant: str | None) -> Iterator[Wish]:
    for wish in wishes(file):
        if not isinstance(wish, Wish) or not isinstance(wish.response, UnsetType):
            continue
        if not wish.tenant or tenant in (None, wish.tenant):
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
    if summary.passed_over:
        print_line(f"{count(summary.passed_over, 'line')} of the request log passed over")
