"""`rejoinder stats`: how the cache does."""

from typing import Annotated

from cyclopts import Parameter

from proxy.commands.connection import LOCAL, Connection
from proxy.commands.failure import OK
from proxy.commands.output import print_figures, print_json


def stats(
    *,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    connection: Connection = LOCAL,
) -> int:
    """Show how many requests were answered from where, and what the cache holds.

    **Examples**

        rejoinder stats

        rejoinder stats --admin http://10.0.0.7:8081 --json

    Parameters
    ----------
    as_json
        Print the server's JSON instead.
    """
    from proxy.commands.adminclient import AdminClient

    body = AdminClient(connection).stats()
    (print_json if as_json else print_figures)(body)
    return OK
