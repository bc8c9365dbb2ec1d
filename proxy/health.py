"""Whether the proxy can answer, part by part; asked on both ports."""

from collections.abc import Callable, Iterable
from typing import Any

from litestar import HttpMethod, Response, route
from litestar.di import NamedDependency

from proxy.processes.reload import ReloadReport
from proxy.upstreams.base import Upstream

METHODS = (HttpMethod.GET, HttpMethod.HEAD)
"""Some load balancers ask for the head alone; the server leaves the body out."""

PATHS = frozenset({"/healthz", "/readyz"})
"""Where it is asked for."""

_WELL = ("none", "ready")


class Health:
    """Ready once the first load is done, until draining begins.

    An upstream that is down does not make it unready: that is when stored answers are worth most.
    Nor does an embedder that is away: then answers are found by their own words only. `degraded`
    names them.
    """

    def __init__(
        self, upstreams: Callable[[], Iterable[Upstream]], *, away: Callable[[], str]
    ) -> None:
        """`upstreams`: those of the config in force. `away`: why the embedder that was loaded
        answers nobody for now; empty when it answers."""
        self._upstreams = upstreams
        self._away = away
        self.reloaded: Callable[[], ReloadReport | None] = _never
        self.embedder = "none"
        self.classifier = "none"
        """Of volatile prompts: `ready` where there is one for the embedder."""
        self.loaded = False
        self.draining = False

    def embedder_state(self) -> str:
        """`none`, `loading`, `ready`, or why there are no embeddings for now."""
        return (self._away() if self.embedder == "ready" else "") or self.embedder

    async def report(self) -> dict[str, Any]:
        """The states of the parts; never waits for one of them."""
        embedder = self.embedder_state()
        upstreams = {one.name: await one.state() for one in self._upstreams()}
        parts = {"embedder": embedder, **{f"upstream {one}": upstreams[one] for one in upstreams}}
        return {
            "ready": self.loaded and not self.draining,
            "draining": self.draining,
            "degraded": [f"{part}: {state}" for part, state in parts.items() if state not in _WELL],
            "embedder": embedder,
            "classifier": self.classifier,
            "upstreams": upstreams,
            "reload": self.reloaded(),
        }


@route("/healthz", http_method=METHODS)
async def healthz() -> dict[str, str]:
    """The process is up. Waits for nothing."""
    return {"status": "ok"}


@route("/readyz", http_method=METHODS)
async def readyz(health: NamedDependency[Health]) -> Response[dict[str, Any]]:
    """200 once everything has been loaded, 503 before and while draining."""
    report = await health.report()
    return Response(report, status_code=200 if report["ready"] else 503)


def _never() -> None:
    """The config was not reloaded yet."""
