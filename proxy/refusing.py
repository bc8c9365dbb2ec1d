"""What Litestar refuses by itself, in OpenAI's shape: on the admin port, and on the data port where
load balancers ask."""

from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException

from proxy.errors import error_body

_CODES = {404: "unknown_url", 405: "method_not_allowed"}


def refuse_http(_: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """An exception handler. Its headers go along: those of a 405 say what is allowed."""
    code = _CODES.get(error.status_code)
    return Response(
        error_body(error.detail, kind="invalid_request_error", code=code),
        status_code=error.status_code,
        headers=error.headers,
        media_type="application/json",
    )
