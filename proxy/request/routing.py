"""Which upstreams and which policy a request gets. Pure: facts in, a route out."""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from proxy.errors import ClientError
from proxy.request.matching import Facts, Matcher
from proxy.settings import config as written
from proxy.settings.glob import is_literal
from proxy.upstreams.base import Upstream

Mode = Literal["serve", "shadow", "none"]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes."""

    name: str
    """`routes[2]`, as the config numbers them."""
    upstreams: tuple[Upstream, ...]
    """In order of preference; at least one."""
    model: str
    """The name that the upstream is asked for; empty where the request has none."""
    mode: Mode
    """`none`: neither looked up nor stored, and then there is no policy."""
    policy_name: str | None
    policy: written.Policy | None
    retries: int
    hedge_after_s: float | None = None
    """A stream without a first event by then is asked for a second time."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model in OpenAI's shape (API reference, "The model object")."""

    id: str
    owned_by: str
    """Name of the upstream that it goes to first."""
    object: Literal["model"] = "model"
    created: int = 0
    """Unix seconds. Not known of models that others serve."""


def names_of(model: str, config: written.Config) -> tuple[str, ...]:
    """Every name under which answers to requests for `model` may be kept: itself, what its alias
    stands for, and what routes that take it ask their upstreams for. `config` as for `Router`."""
    resolved = _resolve(model, config.aliases)
    rewritten = (
        route.model.rewrite
        for route in config.routes
        if route.model is not None and Matcher(route.match).takes_model(resolved)
    )
    return tuple(dict.fromkeys((model, resolved, *rewritten)))


class Router:
    """The routes of one config, compiled. Has no state: safe to share, replaced on reload."""

    def __init__(self, config: written.Config, upstreams: Mapping[str, Upstream]) -> None:
        """`config` has been checked (`proxy.settings.file`); `upstreams` has all that it names."""
        self._aliases = {name: _resolve(name, config.aliases) for name in config.aliases}
        self._rules = tuple(
            _Rule(route, name=f"routes[{index}]", config=config, upstreams=upstreams)
            for index, route in enumerate(config.routes)
        )

    def route(self, facts: Facts) -> Route:
        """The first route that matches, with aliases resolved before matching.

        Raises `ClientError`: 404 `model_not_found`, or 404 for a path without a route.
        """
        model, path = self._resolved(facts.model), f"/v1{facts.path}"
        for rule in self._rules:
            if rule.matcher.fits(facts, model, path):
                return rule.route_of(model)
        raise _no_path(facts.path) if facts.model is None else _no_model(facts.model)

    def models(self, *, tenant: str) -> tuple[Model, ...]:
        """What `/v1/models` lists for a tenant, each id once: aliases, the literal models of
        `match`, and the ids that upstreams are known to serve."""
        found: dict[str, Model] = {}
        for name, target in self._aliases.items():
            owner = self._owner(target, tenant)
            if owner is not None:
                found.setdefault(name, Model(id=name, owned_by=owner))
        for rule in self._rules:
            if rule.matcher.takes_tenant(tenant):
                for model in rule.models():
                    found.setdefault(model.id, model)
        return tuple(found.values())

    def model(self, model_id: str, *, tenant: str) -> Model:
        """One of `models`; ids may contain slashes. Raises `ClientError` 404 `model_not_found`."""
        for model in self.models(tenant=tenant):
            if model.id == model_id:
                return model
        raise _no_model(model_id)

    def _resolved(self, model: str | None) -> str | None:
        return None if model is None else self._aliases.get(model, model)

    def _owner(self, model: str, tenant: str) -> str | None:
        for rule in self._rules:
            if rule.matcher.takes_tenant(tenant) and rule.matcher.takes_model(model):
                return rule.upstreams[0].name
        return None


class _Rule:
    """One route of the config: its conditions compiled, its outcome ready."""

    def __init__(
        self,
        route: written.Route,
        *,
        name: str,
        config: written.Config,
        upstreams: Mapping[str, Upstream],
    ) -> None:
        match = route.match
        names = (route.to,) if isinstance(route.to, str) else route.to
        globs = (match.model,) if isinstance(match.model, str) else match.model
        self.upstreams = tuple(upstreams[to] for to in names)
        self._literals = tuple(g for g in globs or () if is_literal(g))
        self.matcher = Matcher(match)
        self._rewrite = None if route.model is None else route.model.rewrite
        self._outcome = self._made(route, name, config)

    def route_of(self, model: str | None) -> Route:
        """The outcome for a model that matches."""
        if model is None:
            return self._outcome
        return msgspec.structs.replace(self._outcome, model=self._rewrite or model)

    def models(self) -> Iterator[Model]:
        """Ids that can be named: literal ones, and those that the upstreams know of themselves."""
        for literal in self._literals:
            yield Model(id=literal, owned_by=self.upstreams[0].name)
        for upstream in self.upstreams:
            for model_id in upstream.models:
                if self.matcher.takes_model(model_id):
                    yield Model(id=model_id, owned_by=upstream.name)

    def _made(self, route: written.Route, name: str, config: written.Config) -> Route:
        use = route.cache
        policy_name = use.policy if isinstance(use, written.CacheUse) else use
        mode: Mode = use.mode if isinstance(use, written.CacheUse) else "serve"
        uncached = use == "none"
        return Route(
            name=name,
            upstreams=self.upstreams,
            model="",
            mode="none" if uncached else mode,
            policy_name=None if uncached else policy_name,
            policy=None if uncached else config.policies[policy_name],
            retries=route.retries,
            hedge_after_s=None if route.hedge is None else float(route.hedge.after),
        )


def _resolve(name: str, aliases: Mapping[str, str]) -> str:
    while name in aliases:
        name = aliases[name]
    return name


def _no_model(model: str) -> ClientError:
    message = f"The model `{model}` does not exist or you do not have access to it."
    return ClientError(404, message, code="model_not_found")


def _no_path(path: str) -> ClientError:
    return ClientError(404, f"Invalid URL: no route leads to /v1{path}.", code="unknown_url")
