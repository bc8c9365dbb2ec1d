"""`rejoinder erase`: take a tenant's or a user's data out of everything that is kept."""

from typing import Annotated

from cyclopts import Parameter

from proxy.commands.adminapi import Erased
from proxy.commands.connection import LOCAL, Connection
from proxy.commands.failure import FAILED, MISUSED, OK, CommandFailed
from proxy.commands.output import count, note, print_json, print_line


def erase(
    *,
    tenant: str = "",
    user: str = "",
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    connection: Connection = LOCAL,
) -> int:
    """Erase one tenant's or one user's answers, log lines, vectors and KV pages.

    What is stored is overwritten, not only hidden; what is being made is not kept. A user is found
    as requests name it: in `user`, `safety_identifier` or `metadata.user_id`.

    Exit code 1: something was in use, and may still be readable; ask again. With several proxies on
    one store each is to be asked: its request log and its memory are its own.

    **Examples**

        rejoinder erase --tenant acme

        rejoinder erase --user ada@example.com --json

    Parameters
    ----------
    tenant
        The tenant.
    user
        The user, in any tenant.
    as_json
        Print the server's JSON instead.
    """
    if bool(tenant) == bool(user):
        raise CommandFailed("give one of --tenant, --user", code=MISUSED)
    from proxy.commands.adminclient import AdminClient

    client = AdminClient(connection)
    body = client.erase(tenant=tenant, user=user)
    erased = client.decoded(body, Erased)
    if as_json:
        print_json(body)
    else:
        print_line(
            f"erased {count(erased.entries, 'answer')}, {count(erased.lines, 'log line')},"
            f" {count(erased.pages, 'KV page')}; {count(erased.requests, 'request')} in memory;"
            f" purge sequence {erased.sequence}"
        )
    if erased.missing:
        note(f"{count(erased.missing, 'worker')} did not answer and may still hold some; ask again")
        return FAILED
    if not erased.scrubbed:
        note("the store was in use all the time: what was freed may still be readable; ask again")
        return FAILED
    return OK
