"""The admin port's application."""

import logging
from collections.abc import Callable
from typing import Any

from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.exceptions import HTTPException

from index.errors import InvalidCursor, StoreFault
from proxy.admin.audit import audit
from proxy.admin.description import Bodies, description
from proxy.admin.entries import entries, entry
from proxy.admin.erasing import EraseBody, erase
from proxy.admin.explain import ExplainBody, explain
from proxy.admin.feedback import FeedbackBody, feedback
from proxy.admin.gate import Gate
from proxy.admin.office import Office
from proxy.admin.prefixtree import prefix_tree
from proxy.admin.profiling import profile
from proxy.admin.purging import PurgeBody, forget, purge
from proxy.admin.recent import recent
from proxy.admin.state import config, metrics, reload, stats
from proxy.dashboard.charts import history
from proxy.dashboard.near import near
from proxy.dashboard.page import page, page_file
from proxy.dashboard.servers import upstreams
from proxy.dashboard.tags import tags
from proxy.errors import ClientError, UpstreamTimeout, error_body
from proxy.health import healthz, readyz
from proxy.refusing import refuse_http
from proxy.transfer.counter import export_entries, import_entries, keep_pairs

log = logging.getLogger("rejoinder.admin")

_BODIES: Bodies = {
    "/cache/purge": PurgeBody,
    "/cache/feedback": FeedbackBody,
    "/cache/explain": ExplainBody,
    "/cache/erase": EraseBody,
}


def admin_app(office: Office, gate: Callable[[], Gate]) -> Litestar:
    """`gate`: that of the config in force."""

    async def check(request: Request[Any, Any, Any]) -> Response[bytes] | None:
        try:
            gate().check(request.url.path, request.headers)
        except ClientError as error:
            return _refuse(request, error)
        return None

    return Litestar(
        [
            *(stats, entries, entry, forget, purge, export_entries, import_entries, keep_pairs),
            *(feedback, recent, explain, erase, audit, config, reload, metrics, healthz, readyz),
            *(profile, prefix_tree),
            *(page, page_file, history, near, tags, upstreams),
        ],
        before_request=check,
        dependencies={
            "office": Provide(lambda: office, sync_to_thread=False),
            "health": Provide(lambda: office.health, sync_to_thread=False),
            "transfer": Provide(lambda: office.transfer, sync_to_thread=False),
        },
        exception_handlers={
            ClientError: _refuse,
            HTTPException: refuse_http,
            StoreFault: _store_failed,
            UpstreamTimeout: _engine_silent,
            InvalidCursor: _refuse_cursor,
            Exception: _failed,
        },
        openapi_config=description(_BODIES),
        logging_config=None,
    )


def _refuse(_: Request[Any, Any, Any], error: ClientError) -> Response[bytes]:
    body = error_body(error.message, kind=error.kind, param=error.param, code=error.code)
    return Response(body, status_code=error.status, media_type="application/json")


def _refuse_cursor(request: Request[Any, Any, Any], error: InvalidCursor) -> Response[bytes]:
    return _refuse(request, ClientError(400, f"{error}.", param="cursor"))


def _failed(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """What nobody foresaw."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    message = "The server failed; its log says why."
    return _refuse(request, ClientError(500, message, kind="server_error"))


def _engine_silent(request: Request[Any, Any, Any], error: UpstreamTimeout) -> Response[bytes]:
    return _refuse(request, ClientError(503, str(error), kind="server_error"))


def _store_failed(request: Request[Any, Any, Any], error: StoreFault) -> Response[bytes]:
    return _refuse(request, ClientError(503, f"The store failed: {error}.", kind="server_error"))
