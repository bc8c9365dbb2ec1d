"""`rejoinder stats`: how the cache does."""

from typing import Annotated, Any

from cyclopts import Parameter

from proxy.commands.connection import LOCAL, Connection
from proxy.commands.failure import OK
from proxy.commands.output import print_json, print_line


def stats(
    *,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    connection: Connection = LOCAL,
) -> int:
    """Show how many requests were answered from where, what that saved, and what the cache holds.

    **Examples**

        rejoinder stats

        rejoinder stats --admin http://10.0.0.7:8081 --json

    Parameters
    ----------
    as_json
        Print the server's JSON instead.
    """
    from proxy.commands.adminclient import AdminClient
    from proxy.commands.grouped import stats_lines

    client = AdminClient(connection)
    body = client.stats()
    if as_json:
        print_json(body)
    else:
        for line in stats_lines(client.decoded(body, dict[str, Any])):
            print_line(line)
    return OK
