"""`rejoinder entry`: one stored answer."""

from typing import Annotated

from cyclopts import Parameter

from proxy.commands.connection import LOCAL, Connection
from proxy.commands.failure import OK
from proxy.commands.output import print_figures, print_json, print_line


def entry(
    key: str,
    /,
    *,
    delete: bool = False,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    connection: Connection = LOCAL,
) -> int:
    """Show what is known of one stored answer, or delete it.

    Deleting also covers an answer that is being made for this key, as `rejoinder purge --key` does.

    **Examples**

        rejoinder entry 3f9c... --json

        rejoinder entry 3f9c... --delete

    Parameters
    ----------
    key
        The whole key, as `rejoinder entries` shows it.
    delete
        Delete it instead of showing it.
    as_json
        Print the server's JSON instead.
    """
    from proxy.commands.adminclient import AdminClient

    client = AdminClient(connection)
    body = client.delete(key) if delete else client.entry(key)
    if as_json and body:
        print_json(body)
    elif delete:
        print_line(f"deleted {key}")
    else:
        print_figures(body)
    return OK
