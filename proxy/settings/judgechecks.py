"""Whether a model that judges answers can be asked. Pure."""

from collections.abc import Iterator

from proxy.settings.config import Config, Route
from proxy.settings.finding import Finding
from proxy.settings.glob import compile_globs
from proxy.settings.semantic import ModelJudge


def check_judges(config: Config) -> Iterator[Finding]:
    """A route may lead to each; what else it asks for is not known before the request."""
    for name, policy in config.policies.items():
        judge = None if policy.semantic is None else policy.semantic.judge
        if isinstance(judge, ModelJudge) and not _has_route(judge.model, config):
            message = f"no route leads to the model `{judge.model}`"
            yield Finding(path=("policies", name, "semantic", "judge", "model"), message=message)


def _has_route(model: str, config: Config) -> bool:
    return model in config.aliases or any(_takes(route, model) for route in config.routes)


def _takes(route: Route, model: str) -> bool:
    wanted = route.match.model
    if wanted is None:
        return True
    globs = (wanted,) if isinstance(wanted, str) else wanted
    return compile_globs(*globs).fullmatch(model) is not None
