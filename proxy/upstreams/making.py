"""From the config's upstreams to running ones."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from index.entry import Snapshot
from proxy.errors import ConfigError
from proxy.settings.upstreams import Upstream as UpstreamConfig
from proxy.upstreams.base import Upstream
from proxy.upstreams.fleet import RemoteUpstream
from proxy.upstreams.pool import Pool


def make_upstream(
    name: str,
    config: UpstreamConfig,
    *,
    engine: str | None,
    say: Callable[[str], None],
    look: Callable[[], Awaitable[Snapshot | None]],
) -> Upstream:
    """`engine`: the socket of an engine that another process runs; None to run one of its own.
    `look`: at how far purges have come."""
    if config.engine is not None:
        # Imported where it is needed, so that a proxy without an engine stays light.
        from proxy.upstreams.local.upstream import LocalUpstream

        return LocalUpstream(
            name,
            config.engine,
            on_progress=say,
            first_byte_s=config.timeout.first_byte,
            shared=engine,
            look=look,
        )
    return RemoteUpstream(name, config)


def make_pools(
    configs: Mapping[str, UpstreamConfig], upstreams: Mapping[str, Upstream]
) -> dict[str, Pool]:
    """The pool of each upstream."""
    return {name: Pool(name, one.servers, configs[name]) for name, one in upstreams.items()}


async def start_all(upstreams: Mapping[str, Upstream]) -> None:
    """Raises ConfigError when one of them cannot be used; all are closed then."""
    starts = (one.start() for one in upstreams.values())
    results = await asyncio.gather(*starts, return_exceptions=True)
    problems = [
        f"upstreams.{name}: {result}"
        for name, result in zip(upstreams, results, strict=True)
        if isinstance(result, BaseException)
    ]
    if problems:
        await close_all(upstreams.values())
        raise ConfigError(problems)


async def close_all(upstreams: Iterable[Upstream]) -> None:
    """One after the other."""
    for upstream in upstreams:
        await upstream.close()
