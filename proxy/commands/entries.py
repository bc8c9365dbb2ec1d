"""`rejoinder entries`: what the cache holds."""

import shlex
import time
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from proxy.commands.adminapi import EntryPage
from proxy.commands.connection import LOCAL, Connection
from proxy.commands.failure import OK
from proxy.commands.listing import print_entry
from proxy.commands.output import note, print_json


def entries(
    *,
    tag: str | None = None,
    model: str | None = None,
    tenant: str | None = None,
    text: str | None = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=1000))] = 20,
    cursor: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    connection: Connection = LOCAL,
) -> int:
    """List stored answers, newest first, a page at a time.

    All given filters must hold.

    **Examples**

        rejoinder entries --tag doc:42

        rejoinder entries --text refund --limit 100 --json

    Parameters
    ----------
    tag
        Only those that depend on this tag.
    model
        Only those of this model.
    tenant
        Only those of this tenant.
    text
        Only those whose prompt contains this.
    limit
        Entries on a page, 1000 at most.
    cursor
        Where to go on, as the page before said.
    as_json
        Print the server's JSON instead.
    """
    from proxy.commands.adminclient import AdminClient

    client = AdminClient(connection)
    where = {"tag": tag, "model": model, "tenant": tenant, "q": text}
    body = client.entries({**where, "cursor": cursor, "limit": limit})
    if as_json:
        print_json(body)
        return OK
    page = client.decoded(body, EntryPage)
    now = time.time()
    for entry in page.entries:
        print_entry(entry, now=now)
    if not page.entries:
        note("no entries")
    if page.cursor is not None:
        note(f"more: the same with --cursor {shlex.quote(page.cursor)}")
    return OK
