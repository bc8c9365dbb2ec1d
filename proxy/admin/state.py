"""What is in force, and what is counted."""

from typing import Any

import msgspec
from litestar import Request, Response, get, post
from litestar.di import NamedDependency

from proxy.admin.deeds import audited
from proxy.admin.office import Office
from proxy.errors import ErrorDetail
from proxy.processes.gathering import Count
from proxy.processes.reload import Refusal
from proxy.settings.file import dump

_STATUS: dict[Refusal, int] = {"invalid_config": 400, "worker_stuck": 503, "reload_failed": 500}


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
    `problems` has the process that does not answer; 500: it still is, and `problems` has
    what failed."""
    report = await audited(office.deeds, request, "reload", None, office.reload())
    answer = msgspec.to_builtins(report)
    if report.code is not None:
        detail = ErrorDetail(
            message="\n".join(report.problems),
            type="server_error" if _STATUS[report.code] >= 500 else "invalid_request_error",
            param=None,
            code=report.code,
        )
        answer["error"] = msgspec.to_builtins(detail)
    return Response(
        msgspec.json.encode(answer),
        status_code=200 if report.code is None else _STATUS[report.code],
        media_type="application/json",
    )


@get("/metrics")
async def metrics(office: NamedDependency[Office]) -> Response[bytes]:
    """Prometheus' text format."""
    counted = await office.peers().ask(Count())
    exposition = await office.metrics.read(lambda: office.metrics.exposition(counted.counts))
    return Response(exposition, media_type="text/plain; version=0.0.4")
