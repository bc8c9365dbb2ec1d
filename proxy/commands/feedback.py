"""`rejoinder feedback`: say whether an answer given by meaning was right."""

from typing import Annotated, Literal

from cyclopts import Parameter

from proxy.commands.connection import LOCAL, Connection
from proxy.commands.failure import OK
from proxy.commands.output import print_json, print_line


def feedback(
    request_id: str,
    verdict: Literal["right", "wrong"],
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    connection: Connection = LOCAL,
) -> int:
    """Say that an answer given by meaning was right or wrong.

    After `wrong` its question never again gets the answer to the other one.

    **Examples**

        rejoinder feedback req-0b5f wrong

    Parameters
    ----------
    request_id
        As the answer's header `x-request-id` says.
    verdict
        What the answer was.
    as_json
        Print `{"request_id", "verdict"}` as it was counted.
    """
    from proxy.commands.adminclient import AdminClient

    counted = AdminClient(connection).feedback(request_id, verdict)
    if as_json:
        print_json(counted)
    else:
        print_line(f"counted {request_id} as {verdict}")
    return OK
