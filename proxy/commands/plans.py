"""The memory plans of a config's engines, as `rejoinder check` prints them."""

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from proxy.commands.output import count, size

if TYPE_CHECKING:
    from proxy.settings.engine import Engine
    from proxy.settings.file import Loaded
    from proxy.settings.tree import Path
    from proxy.upstreams.local.plan import MemoryPlan


def plans_of(loaded: "Loaded") -> "dict[str, MemoryPlan | None]":
    """By upstream; None for a model of the hub, which may have to be downloaded first. Raises
    ConfigError for a model that cannot be run here."""
    upstreams = loaded.config.upstreams.items()
    return {
        name: _plan(loaded, name, one.engine) for name, one in upstreams if one.engine is not None
    }


def _plan(loaded: "Loaded", name: str, engine: "Engine") -> "MemoryPlan | None":
    from proxy.errors import ConfigError
    from proxy.upstreams.local.plan import planned

    try:
        plan = planned(engine)
    except ConfigError as error:
        place = ("upstreams", name, "engine", "model")
        raise ConfigError([loaded.at(place, text) for text in error.problems]) from error
    if plan is not None and plan.caches[0].num_tokens < plan.page_tokens:
        text = f"holds no page of {plan.page_tokens} tokens, so that no request could be answered"
        raise ConfigError([loaded.at(_memory(name), text)])
    return plan


def _memory(name: str) -> "Path":
    return ("upstreams", name, "engine", "kv_cache", "memory")


def plan_warnings(loaded: "Loaded", plans: "Mapping[str, MemoryPlan | None]") -> Iterator[str]:
    """Of engines that could not serve one request as long as the config promises, or that want more
    memory than there is."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name, plan in plans.items():
        if plan is None:
            continue
        if plan.caches[0].num_tokens < plan.max_context:
            yield loaded.at(
                _memory(name),
                f"{plan.caches[0].num_tokens:,} tokens fit, fewer than a context of "
                f"{plan.max_context:,}; longer requests are refused",
            )
        if plan.weights_bytes + plan.kv_memory_bytes > there:
            wanted = f"with the weights {size(plan.weights_bytes + plan.kv_memory_bytes)}"
            yield loaded.at(_memory(name), f"{wanted}, more than the {size(there)} of this machine")


def plan_lines(name: str, plan: "MemoryPlan | None") -> Iterator[str]:
    """A paragraph and a table."""
    if plan is None:
        yield f"upstreams.{name}.engine: no memory plan of a model of the hub"
        return
    heads = f"{count(plan.num_heads, 'query head')} on {count(plan.num_kv_heads, 'KV head')}"
    yield f"upstreams.{name}.engine: {count(plan.num_layers, 'layer')}, {heads} of {plan.head_dim}"
    millions = f"{plan.num_parameters / 1e6:,.0f} million parameters"
    yield f"  weights   {size(plan.weights_bytes)} as {plan.weights} ({millions})"
    yield f"  KV cache  {size(plan.kv_memory_bytes)} in pages of {plan.page_tokens} tokens"
    yield from _table(plan)


def _table(plan: "MemoryPlan") -> Iterator[str]:
    short, longest = min(1024, plan.max_context), plan.max_context
    header = ("kept as", "bytes a token", "tokens that fit", f"sequences of {longest:,}",
              f"of {short:,}")  # fmt: skip
    rows = [
        (cache.kept_as, f"{cache.bytes_per_token:,}", f"{cache.num_tokens:,}",
         f"{cache.num_longest:,}", f"{cache.num_short:,}")
        for cache in plan.caches
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for first, *numbers in (header, *rows):
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        yield "  " + "  ".join([first.ljust(widths[0]), *cells])
