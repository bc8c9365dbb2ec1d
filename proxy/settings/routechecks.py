"""Checks of routes and aliases: what they name exists, and each has something to do. Pure."""

from collections.abc import Iterator

from proxy.settings.config import CacheUse, Config, Match, Route, Tenants
from proxy.settings.finding import Finding, check_header
from proxy.settings.glob import compile_globs, covers
from proxy.settings.tree import Path, suggest

_KEPT_BY_PROVIDERS = (
    "/v1/chat/completions/ID", "/v1/responses/ID", "/v1/files/ID", "/v1/batches/ID",
    "/v1/conversations/ID", "/v1/assistants/ID", "/v1/threads/ID", "/v1/vector_stores/ID",
    "/v1/containers/ID", "/v1/fine_tuning/jobs/ID", "/v1/evals/ID", "/v1/videos/ID",
)  # fmt: skip
"""Paths of OpenAI's API that read what was put there before; only passed through here."""


def check_aliases(config: Config) -> Iterator[Finding]:
    """Aliases end at a model that some route takes."""
    aliases = config.aliases
    for name in aliases:
        seen = [name]
        while (following := aliases.get(seen[-1])) is not None and following not in seen:
            seen.append(following)
        if following == name:
            message = f"goes round in a circle: {' -> '.join([*seen, name])}"
            yield Finding(path=("aliases", name), message=message)
        elif following is None and not _is_routed(seen[-1], config.routes):
            message = f"no route takes the model {seen[-1]!r}"
            yield Finding(path=("aliases", name), message=message, target=("routes",), warning=True)


def check_routes(config: Config) -> Iterator[Finding]:
    """Routes lead to upstreams and policies that exist, and each can be reached."""
    if not config.routes:
        message = "no route, so no request could be answered"
        yield Finding(path=("routes",), message=message, target=("routes",))
    for index, route in enumerate(config.routes):
        yield from _targets(route, config, ("routes", index, "to"))
        yield from _cache(route, config, ("routes", index, "cache"))
        yield from _globs(route, config, ("routes", index, "match", "model"))
        for header, glob in route.match.header.items():
            yield from check_header(header, glob, ("routes", index, "match", "header", header))
        yield from _fields(route.match, ("routes", index, "match", "body"))
        yield from _hedge(route, config, ("routes", index, "hedge"))
    yield from _shadowed(config.routes)
    if config.tenants is not None:
        yield from _shared_objects(config, config.tenants)


def _is_routed(model: str, routes: tuple[Route, ...]) -> bool:
    globs = [_model_globs(route.match) for route in routes]
    return any(one is None or compile_globs(*one).fullmatch(model) for one in globs)


def _targets(route: Route, config: Config, path: Path) -> Iterator[Finding]:
    names = (route.to,) if isinstance(route.to, str) else route.to
    if not names:
        yield Finding(path=path, message="name at least one upstream", target=path)
    for place, name in enumerate(names):
        here = path if isinstance(route.to, str) else (*path, place)
        if name not in config.upstreams:
            message = f"no upstream is called `{name}`{suggest(name, config.upstreams)}"
            yield Finding(path=here, message=message, target=("upstreams", name))
        if name in names[:place]:
            yield Finding(path=here, message=f"`{name}` stands here twice")


def _cache(route: Route, config: Config, path: Path) -> Iterator[Finding]:
    name = route.cache.policy if isinstance(route.cache, CacheUse) else route.cache
    if name in config.policies or route.cache == "none":
        return
    message = f"no policy is called `{name}`{suggest(name, [*config.policies, 'none'])}"
    yield Finding(path=path, message=message, target=("policies", name))


def _globs(route: Route, config: Config, path: Path) -> Iterator[Finding]:
    globs = _model_globs(route.match)
    if globs == ():
        yield Finding(path=path, message="an empty list matches no model")
    for glob in globs or ():
        if not glob:
            yield Finding(path=path, message="an empty pattern matches no model")
        elif "[" in glob or "{" in glob:
            message = f"{glob!r}: only * and ? are wildcards, brackets stand for themselves"
            yield Finding(path=path, message=message, warning=True)
        elif glob in config.aliases:
            message = f"{glob!r} is an alias, which is resolved before routes are looked at"
            yield Finding(path=path, message=message, warning=True)


def _fields(match: Match, path: Path) -> Iterator[Finding]:
    for field in match.body:
        if not all(field.split(".")):
            message = "a path of names with a dot between them, such as metadata.team"
            yield Finding(path=(*path, field), message=message)
        elif field == "model":
            message = "aliases are not resolved here; `match.model` is for that"
            yield Finding(path=(*path, field), message=message, warning=True)


def _hedge(route: Route, config: Config, path: Path) -> Iterator[Finding]:
    names = (route.to,) if isinstance(route.to, str) else route.to
    known = [config.upstreams[name] for name in names if name in config.upstreams]
    if route.hedge is not None and len(known) == 1 and len(known[0].bases) < 2:
        message = "there is nobody else to ask: one upstream with one server"
        yield Finding(path=path, message=message, warning=True)


def _shadowed(routes: tuple[Route, ...]) -> Iterator[Finding]:
    for index, route in enumerate(routes):
        for before in range(index):
            if _takes_all_of(routes[before].match, route.match):
                message = f"never reached: routes[{before}] takes every such request before it"
                yield Finding(path=("routes", index), message=message, warning=True)
                break


def _shared_objects(config: Config, tenants: Tenants) -> Iterator[Finding]:
    """Behind one key of the proxy's own, all tenants are one to the provider."""
    names = {*tenants.keys.values()} | ({"anonymous"} if tenants.anonymous else set())
    reading: dict[str, set[str]] = {}
    for index, route in enumerate(config.routes):
        # What is passed through goes to the first upstream only.
        to = route.to if isinstance(route.to, str) else next(iter(route.to), "")
        upstream, kept = config.upstreams.get(to), _kept_path(route.match)
        if upstream is None or upstream.credential != "own" or kept is None:
            continue
        glob = compile_globs(route.match.tenant or "*")
        reading.setdefault(to, set()).update(name for name in names if glob.fullmatch(name))
        if len(reading[to]) > 1:
            message = (
                f"passes on GET {kept} and the like, with the one key of `{to}`: its "
                f"{len(reading[to])} tenants can read what each of them has stored there"
            )
            yield Finding(path=("routes", index, "match", "path"), message=message, warning=True)


def _kept_path(match: Match) -> str | None:
    """The first of `_KEPT_BY_PROVIDERS` that is taken. Conditions on a body are met by none."""
    if match.model is not None or match.body or match.prompt_bytes is not None:
        return None
    glob = compile_globs(match.path or "*")
    return next((path for path in _KEPT_BY_PROVIDERS if glob.fullmatch(path)), None)


def _takes_all_of(first: Match, later: Match) -> bool:
    """Every request that fits `later` also fits `first`."""
    unconditional = first.path in (None, "*", "/v1/*") and first.tenant in (None, "*")
    if first.header or first.body or first.prompt_bytes or not unconditional:
        return False
    wide, narrow = _model_globs(first), _model_globs(later)
    if wide is None:
        return True
    return narrow is not None and all(any(covers(w, n) for w in wide) for n in narrow)


def _model_globs(match: Match) -> tuple[str, ...] | None:
    return (match.model,) if isinstance(match.model, str) else match.model
