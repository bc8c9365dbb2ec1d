"""`rejoinder purge`: make answers invalid."""

from typing import Annotated

from cyclopts import Parameter

from proxy.commands.adminapi import Purged, PurgeRequest
from proxy.commands.connection import LOCAL, Connection
from proxy.commands.failure import MISUSED, OK, CommandFailed
from proxy.commands.output import count, print_json, print_line


def purge(
    *,
    tag: tuple[str, ...] = (),
    key: tuple[str, ...] = (),
    model: tuple[str, ...] = (),
    tenant: tuple[str, ...] = (),
    everything: Annotated[bool, Parameter(name="--all")] = False,
    soft: bool = False,
    dry_run: bool = False,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    connection: Connection = LOCAL,
) -> int:
    """Make answers invalid, also those that are being made at this moment.

    An answer is covered when any of the options names it. Options may be repeated.

    **Examples**

        rejoinder purge --tag doc:42

        rejoinder purge --tag doc:42 --tag kb:prices --dry-run

        rejoinder purge --model gpt-4o --soft

        rejoinder purge --all

    Parameters
    ----------
    tag
        A dependency tag.
    key
        The key of one entry.
    model
        A model, as the upstream named it.
    tenant
        A tenant.
    everything
        Everything there is.
    soft
        Keep what is covered for the times when the policy allows stale answers.
    dry_run
        Only count what would be covered.
    as_json
        Print the server's JSON instead.
    """
    if not (tag or key or model or tenant or everything):
        message = "nothing to purge: give --tag, --key, --model, --tenant or --all"
        raise CommandFailed(message, code=MISUSED)
    from proxy.commands.adminclient import AdminClient

    client = AdminClient(connection)
    body = client.purge(
        PurgeRequest(
            tags=tag,
            keys=key,
            models=model,
            tenants=tenant,
            all=everything,
            soft=soft,
            dry_run=dry_run,
        )
    )
    if as_json:
        print_json(body)
        return OK
    purged = client.decoded(body, Purged)
    covered = (
        "answers (too many to count)" if purged.matched is None else count(purged.matched, "answer")
    )
    if dry_run:
        print_line(f"would purge {covered}")
        return OK
    entries = count(purged.entries, "entry", "entries")
    freed = f"{entries} and {count(purged.pages, 'KV page')} freed now"
    print_line(f"purged {covered}; {freed}; purge sequence {purged.sequence}")
    return OK
