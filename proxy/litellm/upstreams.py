"""Upstreams out of deployments: servers that are asked in the same way for the same model become
one upstream, which spreads requests over them."""

import math
import re
from collections.abc import Iterable, Mapping

import msgspec

from proxy.litellm.deployments import Access, Deployment

_MAX_WEIGHT = 1000
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream; hashable, so that groups with the same servers share it."""

    access: Access
    servers: tuple[tuple[str, int], ...]
    """Base URLs and weights."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream that a group of models may be asked from."""

    pool: Pool
    model: str | None
    real_model: str
    """As of `Deployment`."""


def choices_of(deployments: Iterable[Deployment]) -> tuple[Choice, ...]:
    """The upstreams of one group, in the order in which LiteLLM prefers them."""
    alike: dict[tuple[float, Access, str | None, str, str], dict[str, int]] = {}
    for one in sorted(deployments, key=lambda one: one.order):
        # The model of an Azure deployment stands in its URL: others at that URL are not alike.
        apart = one.base_url if one.model is None else ""
        servers = alike.setdefault((one.order, one.access, one.model, one.real_model, apart), {})
        servers[one.base_url] = servers.get(one.base_url, 0) + one.weight
    return tuple(
        Choice(
            pool=Pool(access=access, servers=_scaled(servers)), model=model, real_model=real_model
        )
        for (_, access, model, real_model, _), servers in alike.items()
    )


def names_of(pools: Iterable[Pool]) -> dict[Pool, str]:
    """A name for each: its provider's, numbered where there are several."""
    names: dict[Pool, str] = {}
    for pool in pools:
        if pool in names:
            continue
        stem = _NO_NAME.sub("-", pool.access.provider.replace("_", "-")).strip("-") or "upstream"
        number = 1 + sum(name.rpartition("-")[0] == stem or name == stem for name in names.values())
        names[pool] = stem if number == 1 else f"{stem}-{number}"
    return names


def _scaled(servers: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Weights in the same proportion, as far as whole numbers up to the greatest one can be."""
    divisor: float = math.gcd(*servers.values())
    if (largest := max(servers.values()) / divisor) > _MAX_WEIGHT:
        divisor *= largest / _MAX_WEIGHT
    return tuple((url, max(round(weight / divisor), 1)) for url, weight in servers.items())
