"""LiteLLM's config, read whole: what it says of models, retries, times, keys and the cache."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import yaml

from proxy.errors import ConfigError
from proxy.litellm.caching import Caching, caching_of
from proxy.litellm.deployments import Access, CannotAsk, Deployment, deployment_of
from proxy.litellm.reasons import reason_of
from proxy.litellm.section import Remark, Section

_BALANCES = {
    "simple-shuffle": "round_robin", "least-busy": "least_busy",
    "usage-based-routing": "least_busy", "usage-based-routing-v2": "least_busy",
    "latency-based-routing": "least_busy", "cost-based-routing": "round_robin",
}  # fmt: skip
_EXACT_BALANCES = ("simple-shuffle", "least-busy")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Texts are as this proxy's config writes them. `remarks` are not beside anything that was
    taken over."""

    deployments: tuple[Deployment, ...]
    aliases: dict[str, str]
    fallbacks: dict[str, list[str]]
    default_fallbacks: tuple[str, ...]
    retries: int | None
    balance: str
    caching: Caching
    master_key: str
    remarks: tuple[Remark, ...]


def read(text: str) -> Source:
    """Raises `ConfigError` where it is not LiteLLM's config."""
    root = Section(_values(text))
    settings, router = root.part("litellm_settings"), root.part("router_settings")
    general = root.part("general_settings")
    remarks: list[Remark] = []
    defaults = Access(
        provider="",
        total_s=_first(router.number("timeout"), settings.number("request_timeout")),
        first_byte_s=router.number("stream_timeout"),
        max_in_flight=_whole(general.number("max_parallel_requests")),
    )
    deployments = tuple(_deployments(root, defaults, remarks))
    retries = _first(router.number("num_retries"), settings.number("num_retries"))
    source = Source(
        deployments=deployments,
        aliases=_aliases(router, remarks),
        fallbacks=_fallbacks([*router.items("fallbacks"), *settings.items("fallbacks")], remarks),
        default_fallbacks=tuple(
            map(str, router.items("default_fallbacks") or settings.items("default_fallbacks"))
        ),
        retries=_whole(retries),
        balance=_balance(router, remarks),
        caching=caching_of(settings),
        master_key=general.text("master_key"),
        remarks=(),
    )
    remarks += (Remark(where=path, message=reason_of(path), left_out=True) for path in root.left())
    return msgspec.structs.replace(source, remarks=tuple(remarks))


def _values(text: str) -> dict[str, Any]:
    """By YAML 1.1, as LiteLLM reads it."""
    try:
        values = yaml.safe_load(text)
    except RecursionError:
        raise ConfigError(["not a config: it is nested too deeply"]) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError([f"not YAML: {' '.join(str(error).split())}"]) from None
    if not isinstance(values, dict) or not isinstance(values.get("model_list"), list):
        raise ConfigError(["no config of LiteLLM's: it has no list `model_list`"])
    return {str(key): value for key, value in values.items()}


def _deployments(root: Section, defaults: Access, remarks: list[Remark]) -> Iterator[Deployment]:
    for index, values in enumerate(root.items("model_list")):
        if not isinstance(values, dict):
            raise ConfigError([f"model_list[{index}]: expected a mapping"])
        item = root.add(f"model_list[{index}]", values)
        try:
            yield deployment_of(item, defaults)
        except CannotAsk as error:
            item.forget()
            remarks.append(Remark(where=item.path, message=str(error), left_out=True))


def _aliases(router: Section, remarks: list[Remark]) -> dict[str, str]:
    """`{alias: group}`, or `{alias: {model: group, hidden: true}}`."""
    found = {}
    for alias, target in router.mapping("model_group_alias").items():
        model = target.get("model") if isinstance(target, dict) else target
        if isinstance(model, str):
            found[str(alias)] = model
        else:
            where = f"{router.path}.model_group_alias"
            remarks.append(_no_name(where, f"{alias}: {model!r} is not the name of a model"))
    return found


def _fallbacks(items: Iterable[Any], remarks: list[Remark]) -> dict[str, list[str]]:
    """A list of mappings with one key each."""
    found: dict[str, list[str]] = {}
    for item in items:
        if not isinstance(item, Mapping):
            remarks.append(_no_name("fallbacks", f"{item!r} does not say whose fallback it is"))
            continue
        for group, names in item.items():
            listed = names if isinstance(names, list) else [names]
            found.setdefault(str(group), []).extend(map(str, listed))
    return found


def _no_name(where: str, message: str) -> Remark:
    return Remark(where=where, message=message, left_out=True)


def _balance(router: Section, remarks: list[Remark]) -> str:
    strategy = router.text("routing_strategy") or "simple-shuffle"
    balance = _BALANCES.get(strategy, "round_robin")
    if strategy not in _EXACT_BALANCES:
        message = f"{strategy}: {balance} is the nearest there is"
        where = f"{router.path}.routing_strategy"
        remarks.append(Remark(where=where, message=message, left_out=False))
    return balance


def _first(*numbers: float | None) -> float | None:
    return next((number for number in numbers if number is not None), None)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
