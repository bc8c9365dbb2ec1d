"""What the engine refuses, as OpenAI's API says it."""

from collections.abc import Mapping

from engine.errors import RequestRefused
from proxy.errors import ClientError, error_body

_OURS = {"grammars_busy": 503, "engine_fault": 500}
"""Codes of refusals that are not the request's fault; clients try again after them."""


def refusal_of(error: RequestRefused, fields: Mapping[str, str], *, param: str) -> ClientError:
    """`param`: as the engine names the field; `fields`: as the client does."""
    status = _OURS.get(error.code or "")
    if status is not None:
        return ClientError(status, error.message, kind="server_error", code=error.code)
    return ClientError(400, error.message, param=fields.get(param, param), code=error.code)


def told(error: ClientError) -> bytes:
    """The body of the answer, or the data of an event."""
    return error_body(error.message, kind=error.kind, param=error.param, code=error.code)
