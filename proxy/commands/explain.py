"""`rejoinder explain`: why a request gets the answer that it gets."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from proxy.commands.connection import LOCAL, Connection
from proxy.commands.failure import MISUSED, OK, CommandFailed
from proxy.commands.output import print_json, print_line


def explain(
    what: str,
    other: str | None = None,
    /,
    *,
    tenant: str | None = None,
    path: str = "/chat/completions",
    api_key: Annotated[str, Parameter(env_var="OPENAI_API_KEY", show_default=False)] = "",
    as_json: Annotated[bool, Parameter(name="--json")] = False,
    connection: Connection = LOCAL,
) -> int:
    """Say what decides about a request, as if it came now; or why two do not share an answer.

    A request is a file with its body, a line of the request log in a file of its own, or the id of
    one that went through (header `x-request-id`). Nothing is asked of an upstream, served or
    changed.

    **Examples**

        rejoinder explain request.json --tenant acme

        rejoinder explain req_0b5f3a

        rejoinder explain a.json b.json --api-key sk-mine

    Parameters
    ----------
    what
        A file, or the id of a request.
    other
        Another one, to be compared with.
    tenant
        Whose request it is, where no key says it.
    path
        The endpoint below /v1 of a file with a body.
    api_key
        The client's key: which answers may be shared depends on it. Beside an id: only if the
        request came with this key; that of the environment is not meant there.
    as_json
        Print the server's JSON instead.
    """
    import os

    import msgspec

    from proxy.commands.adminclient import AdminClient
    from proxy.commands.explained import comparison_lines, explanation_lines
    from proxy.explaining.views import Comparison, Explanation

    client = AdminClient(connection)
    keyed = {"authorization": f"Bearer {api_key}"} if api_key and tenant is None else {}
    named = {} if api_key == os.environ.get("OPENAI_API_KEY") else keyed
    asked = _asked(what, tenant=tenant, path=path, headers=keyed, beside_id=named)
    if other is not None:
        asked["other"] = _asked(other, tenant=tenant, path=path, headers=keyed, beside_id=named)
    body = client.explain(msgspec.json.encode(asked))
    if as_json:
        print_json(body)
    elif other is None:
        for line in explanation_lines(client.decoded(body, Explanation)):
            print_line(line)
    else:
        for line in comparison_lines(client.decoded(body, Comparison)):
            print_line(line)
    return OK


def _asked(
    what: str,
    *,
    tenant: str | None,
    path: str,
    headers: dict[str, str],
    beside_id: dict[str, str],
) -> dict[str, Any]:
    import msgspec

    whose: dict[str, Any] = {} if tenant is None else {"tenant": tenant}
    file = Path(what)
    if not file.is_file():
        if file.suffix or "/" in what:
            raise CommandFailed(f"there is no file {what}", code=MISUSED)
        return {"request_id": what, "headers": beside_id, **whose}
    try:
        body = msgspec.json.decode(file.read_bytes())
    except RecursionError:
        message = f"{what} is not a request: it is nested too deeply"
        raise CommandFailed(message, code=MISUSED) from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{what} is not a request: {error}", code=MISUSED) from None
    if isinstance(body, dict) and isinstance(body.get("request"), dict):
        told = {**body.get("headers", {}), **headers}
        kept = {name: body[name] for name in ("query", "directives") if name in body}
        named = {"path": body.get("path") or path, "headers": told, **kept}
        if "tenant" in body and not headers:
            logged = {name: body[name] for name in ("tenant", "credential_id") if name in body}
            whose = {**logged, **whose}
        return {"request": body["request"], **named, **whose}
    return {"request": body, "path": path, "headers": headers, **whose}
