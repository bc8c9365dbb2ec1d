"""What is in force, and what is counted."""

from typing import Any

import msgspec
from litestar import Request, Response, get, post
from litestar.di import NamedDependency

from proxy.admin.deeds import audited
from proxy.admin.office import Office
from proxy.errors import ErrorDetail
from proxy.processes.gathering import Count
from proxy.processes.reload import ReloadReport
from proxy.settings.file import dump


@get("/cache/stats")
async def stats(office: NamedDependency[Office]) -> dict[str, Any]:
    """Sizes and counts now."""
    return await office.stats()


@get("/config")
async def config(office: NamedDependency[Office]) -> Response[bytes]:
    """The config as it is in force, secrets masked."""
    return Response(dump(office.config()), media_type="application/json")


@post("/reload", status_code=200)
async def reload(
    office: NamedDependency[Office], request: Request[Any, Any, Any]
) -> Response[bytes]:
    """Read the config file again. 200: it is in force in every process as this returns; 400: the
    one before it still is, and `problems` has every mistake with its line; 503: it still is, and
    `problems` has the process that does not answer."""
    report = await audited(office.deeds, request, "reload", None, office.reload())
    answer = msgspec.to_builtins(report)
    if not report.ok:
        detail = ErrorDetail(
            message="\n".join(report.problems),
            type="server_error" if report.is_stuck else "invalid_request_error",
            param=None,
            code="worker_stuck" if report.is_stuck else "invalid_config",
        )
        answer["error"] = msgspec.to_builtins(detail)
    return Response(
        msgspec.json.encode(answer),
        status_code=_status(report),
        media_type="application/json",
    )


def _status(report: ReloadReport) -> int:
    if report.ok:
        return 200
    return 503 if report.is_stuck else 400


@get("/metrics")
async def metrics(office: NamedDependency[Office]) -> Response[bytes]:
    """Prometheus' text format."""
    counted = await office.peers().ask(Count())
    exposition = await office.metrics.read(lambda: office.metrics.exposition(counted.counts))
    return Response(exposition, media_type="text/plain; version=0.0.4")
