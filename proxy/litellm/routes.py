"""Routes out of LiteLLM's groups of models and their fallbacks."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from proxy.litellm.section import Remark
from proxy.litellm.upstreams import Choice, Pool


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """All deployments under one name."""

    name: str
    choices: tuple[Choice, ...]
    embeds: bool


class GroupRoute(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a group: the upstreams that are asked, one after the other."""

    group: str
    pools: tuple[Pool, ...]
    model: str | None
    """What they are asked for, where that is another name than the group's."""
    embeds: bool
    remarks: tuple[Remark, ...]


def routes_of(
    groups: Sequence[Group], fallbacks: Mapping[str, Sequence[str]], anyone: Sequence[str]
) -> tuple[GroupRoute, ...]:
    """One route a group; names with `*` come last, the widest at the end. `fallbacks`: groups to
    ask after another one; `anyone`: after those that have none."""
    by_name = {group.name: group for group in groups}
    routes = []
    for group in sorted(groups, key=_breadth):
        following = [name for name in fallbacks.get(group.name, anyone) if name != group.name]
        routes.append(_route(group, following, by_name))
    return tuple(routes)


def without_group(
    groups: Sequence[Group], fallbacks: Mapping[str, Sequence[str]]
) -> Iterator[Remark]:
    """Fallbacks of names that no deployment has."""
    for name in sorted(fallbacks.keys() - {group.name for group in groups}):
        message = f"{name}: no deployment of this name could be taken over, so nothing follows it"
        yield Remark(where="fallbacks", message=message, left_out=True)


def _breadth(group: Group) -> tuple[bool, int]:
    """Plain names keep their order and come first; then patterns, the longest first."""
    is_pattern = "*" in group.name
    return is_pattern, -len(group.name) if is_pattern else 0


def _route(group: Group, following: Sequence[str], groups: Mapping[str, Group]) -> GroupRoute:
    named = next((one.model for one in group.choices if one.model is not None), None)
    pools: dict[Pool, None] = {}
    remarks: list[Remark] = []
    for choice in group.choices:
        if choice.model in (None, named):
            pools[choice.pool] = None
        else:
            remarks.append(_another_model(group.name, group.name, choice))
    remarks += _in_order(group)
    known = {choice.real_model for choice in group.choices if choice.pool in pools}
    for name in following:
        if name not in groups:
            remarks.append(_unknown(group.name, name))
        for choice in groups[name].choices if name in groups else ():
            if choice.real_model in known and choice.model in (None, named or group.name):
                pools[choice.pool] = None
            else:
                remarks.append(_another_model(group.name, name, choice))
    return GroupRoute(
        group=group.name,
        pools=tuple(pools),
        model=None if named == group.name else named,
        embeds=group.embeds,
        remarks=tuple(dict.fromkeys(remarks)),
    )


def _in_order(group: Group) -> Iterator[Remark]:
    if len(group.choices) > 1:
        message = (
            f"{group.name}: its deployments need different keys or settings; they are asked one "
            "after the other, each when the one before fails, and not in turn"
        )
        yield Remark(where="model_list", message=message, left_out=False)


def _unknown(group: str, name: str) -> Remark:
    message = f"{group}: its fallback {name} is no model that could be taken over"
    return Remark(where="fallbacks", message=message, left_out=True)


def _another_model(group: str, name: str, choice: Choice) -> Remark:
    message = (
        f"{group}: not asked for {choice.real_model} ({name}) when others fail: a route asks "
        "all of its upstreams for one and the same model"
    )
    where = "model_list" if name == group else "fallbacks"
    return Remark(where=where, message=message, left_out=True)
