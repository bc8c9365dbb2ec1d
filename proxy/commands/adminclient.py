"""The admin API as the commands call it (paths and shapes: the admin port's own description)."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from proxy.commands.adminapi import PurgeRequest
from proxy.commands.connection import Connection
from proxy.commands.failure import FAILED, MISUSED, CommandFailed
from proxy.errors import ErrorBody

T = TypeVar("T")

_TIMEOUT_S = 60.0
_UNIX = "unix:"
_ADMIN_PORT = "its admin port (--admin or REJOINDER_ADMIN names it)"


class AdminClient:
    """One server's admin API. Every failure is a `CommandFailed` that says what was tried."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        address = connection.admin
        transport, base_url = None, address.rstrip("/")
        if address.startswith(_UNIX):
            transport = httpx.HTTPTransport(uds=address.removeprefix(_UNIX))
            base_url = "http://localhost"
        headers = {"authorization": f"Bearer {connection.token}"} if connection.token else {}
        # The admin port is on this machine or near it: no HTTP_PROXY in between.
        try:
            urlsplit(base_url)  # httpx takes half an IPv6 address for a name
            self._client = httpx.Client(
                base_url=base_url,
                transport=transport,
                headers=headers,
                timeout=_TIMEOUT_S,
                limits=httpx.Limits(max_keepalive_connections=0),  # nobody closes it
                trust_env=False,
            )
        except (httpx.InvalidURL, ValueError) as error:
            message = f"not an address: --admin {address}: {error}"
            raise CommandFailed(message, code=MISUSED) from None

    def stats(self) -> bytes:
        """JSON as the server sent it."""
        return self._ask("GET", "/cache/stats")

    def entries(self, where: Mapping[str, str | int | None]) -> bytes:
        """JSON of an `EntryPage`. `where`: tag, model, tenant, q, cursor, limit; None is absent."""
        given = {name: value for name, value in where.items() if value is not None}
        return self._ask("GET", "/cache/entries", params=given)

    def entry(self, key: str) -> bytes:
        """JSON as the server sent it."""
        return self._ask("GET", f"/cache/entries/{quote(key, safe='')}")

    def delete(self, key: str) -> bytes:
        """JSON as the server sent it; may be empty."""
        return self._ask("DELETE", f"/cache/entries/{quote(key, safe='')}")

    def purge(self, request: PurgeRequest) -> bytes:
        """JSON of a `Purged`."""
        return self._ask("POST", "/cache/purge", body=msgspec.json.encode(request))

    def profile(self, *, upstream: str | None, steps: int, seconds: float) -> bytes:
        """JSON of a `Profile`; returns when the steps are done, or the seconds are over."""
        given = {"steps": steps, "seconds": seconds}
        named = {} if upstream is None else {"upstream": upstream}
        return self._ask("POST", "/engine/profile", params={**given, **named})

    def feedback(self, request_id: str, verdict: str) -> bytes:
        """JSON of what was counted."""
        body = msgspec.json.encode({"request_id": request_id, "verdict": verdict})
        return self._ask("POST", "/cache/feedback", body=body)

    def erase(self, *, tenant: str, user: str) -> bytes:
        """JSON of an `Erased`. One of the two; the other is empty."""
        whose = {"tenant": tenant} if tenant else {"user": user}
        return self._ask("POST", "/cache/erase", body=msgspec.json.encode(whose))

    def explain(self, asked: bytes) -> bytes:
        """JSON as the server sent it. `asked`: JSON of what `POST /cache/explain` takes."""
        return self._ask("POST", "/cache/explain", body=asked)

    @contextlib.contextmanager
    def export(self, where: Mapping[str, str | bool | None]) -> Iterator[Iterator[bytes]]:
        """The JSON lines of an export, in pieces as they come. `where`: tag, model, tenant,
        cursor, embeddings, readable; None is absent."""
        given = {name: value for name, value in where.items() if value is not None}
        tried = f"GET {self._connection.admin}/cache/export"
        with _told(tried), self._client.stream("GET", "/cache/export", params=given) as answer:
            if not answer.is_success:
                answer.read()
                raise _refusal(tried, answer)
            yield answer.iter_bytes()

    def upload(self, path: str, lines: Iterable[bytes], *, as_of_now: bool = False) -> bytes:
        """Send JSON lines as they come; JSON of a `Tally`, when all of them were judged."""
        tried = f"POST {self._connection.admin}{path}"
        # The server judges as it reads, so that the answer may take as long as it likes.
        timeout = httpx.Timeout(_TIMEOUT_S, read=None, write=None)
        with _told(tried):
            answer = self._client.post(
                path,
                content=lines,
                params={"as_of_now": True} if as_of_now else None,
                headers={"content-type": "application/jsonl"},
                timeout=timeout,
            )
        if answer.is_success:
            return answer.content
        raise _refusal(tried, answer)

    def decoded(self, body: bytes, kind: type[T]) -> T:
        """What the server sent, as a type of this file."""
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            message = (
                f"{self._connection.admin} did not answer as an admin port does: {error};"
                f" is this {_ADMIN_PORT}?"
            )
            raise CommandFailed(message) from None

    def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: bytes | None = None,
    ) -> bytes:
        tried = f"{method} {self._connection.admin}{path}"
        headers = {"content-type": "application/json"} if body is not None else {}
        with _told(tried):
            answer = self._client.request(
                method, path, params=params, content=body, headers=headers
            )
        if answer.is_success:
            return answer.content
        raise _refusal(tried, answer)


@contextlib.contextmanager
def _told(tried: str) -> Iterator[None]:
    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise CommandFailed(f"not an address: {tried}: {error}", code=MISUSED) from None
    except (httpx.HTTPError, ValueError) as error:
        raise CommandFailed(f"no answer to {tried}: {_reason(error)}") from None


def _refusal(tried: str, answer: httpx.Response) -> CommandFailed:
    code = MISUSED if answer.status_code == httpx.codes.BAD_REQUEST else FAILED
    return CommandFailed(
        f"{tried} was answered {answer.status_code}: {_message(answer)}", code=code
    )


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.ConnectError):
        return f"cannot connect ({error}); does the server run, and is this {_ADMIN_PORT}?"
    return str(error) or type(error).__name__


def _message(answer: httpx.Response) -> str:
    try:
        message = msgspec.json.decode(answer.content, type=ErrorBody).error.message
    except msgspec.MsgspecError:
        message = f"not in the words of an admin port; is this {_ADMIN_PORT}?"
    if answer.status_code in (401, 403):
        message += " (--token or REJOINDER_ADMIN_TOKEN gives the admin token)"
    return message
