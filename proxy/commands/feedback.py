"""`rejoinder feedback`: say whether an answer given by meaning was right."""

from typing import Literal

from proxy.commands.connection import LOCAL, Connection
from proxy.commands.failure import OK
from proxy.commands.output import print_line


def feedback(
    request_id: str, verdict: Literal["right", "wrong"], /, *, connection: Connection = LOCAL
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
    """
    from proxy.commands.adminclient import AdminClient

    AdminClient(connection).feedback(request_id, verdict)
    print_line(f"counted {request_id} as {verdict}")
    return OK
