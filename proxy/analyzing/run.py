"""From a log and a config to a report. Nothing is sent, stored or changed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from index.semantic import Semantic, SemanticIndex
from index.volatility_examples import Learned
from proxy.analyzing.analysis import Analysis, in_order
from proxy.analyzing.reading import Entry, read
from proxy.analyzing.report import Report
from proxy.deciding import Decider
from proxy.meaning import patterns_of_policy, rules_of_tiers
from proxy.routing import Router
from proxy.settings.config import Config
from proxy.upstreams.making import close_all, make_upstream

DEFAULT = """
upstreams: {upstream: {base_url: "http://127.0.0.1:9/v1"}}
policies: {standard: {ttl: 1h, share: tenant}}
routes: [{to: upstream, cache: standard}]
"""
"""What a log is replayed against where there is no config: exact answers, for an hour."""

_SECRET = b"rejoinder analyze"
_MAX_PROBLEMS = 20
_METHOD = (
    "Requests are replayed in the order of their times against an empty cache without a size limit;"
    " an answer is there as soon as it was asked for, so joined requests count as hits. Wrong hits"
    " by meaning cannot be told from requests alone: `wrong_at_most` is what a policy's audits let"
    " pass (max_error of its hits by meaning), and `doubtful` are the hits that would not stand if"
    " 0.02 more similarity were asked for. Tokens of a log without counts are guessed, four bytes"
    " each, and without answers."
)

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Of a named piece of work with so many steps."""


async def analyze(log: Path, config: Config, text: str, *, progress: Progress) -> Report:
    """`text`: what `config` was read from. Raises OSError, EmbedderFault."""
    entries: list[Entry] = []
    problems: list[str] = []
    num_unread = 0
    for one in read(log):
        if isinstance(one, Entry):
            entries.append(one)
            continue
        num_unread += 1
        if len(problems) < _MAX_PROBLEMS:
            problems.append(f"line {one.line}: {one.reason}")
    semantic, learned = await _meaning(config)
    upstreams = {
        name: make_upstream(name, one, engine=None, say=lambda _: None, look=_nothing)
        for name, one in config.upstreams.items()
    }
    decider = Decider(
        Router(config, upstreams),
        config.policies,
        secret=_SECRET,
        applications=[n for n, one in config.upstreams.items() if one.kind == "application"],
        patterns_of=patterns_of_policy,
        rules_of=rules_of_tiers(config.embedder),
    )
    analysis = Analysis(config, decider, semantic=semantic, learned=learned)
    try:
        with progress("replaying", len(entries)) as advance:
            for entry in in_order(entries):
                await analysis.take(entry)
                advance(1)
        with progress("trying changes", analysis.num_changes()) as advance:
            policies = analysis.reports(_written(text), advance=advance)
    finally:
        await analysis.close()
        await close_all(upstreams.values())
    return Report(
        lines=len(entries) + num_unread,
        unread=num_unread,
        problems=tuple(problems),
        uncached=analysis.num_uncached,
        has_times=any(entry.has_time for entry in entries),
        replays_meaning=semantic is not None,
        method=_METHOD,
        policies=policies,
    )


async def _meaning(config: Config) -> tuple[Semantic, Learned] | tuple[None, None]:
    """What the request path has once its embedder is loaded."""
    asked_for = any(policy.semantic is not None for policy in config.policies.values())
    if config.embedder is None or not asked_for:
        return None, None
    # Imported where they are needed: they bring what loads models.
    from index.volatility_learned import LearnedVolatility
    from proxy.embedding import open_embedder

    embedder = (await open_embedder(config.embedder)).embedder
    return SemanticIndex(embedder), LearnedVolatility(embedder)


def _written(text: str) -> dict[str, dict[str, Any]]:
    """The policies of a config that was read without a mistake."""
    policies: Any = (yaml.safe_load(text) or {}).get("policies") or {}
    return {name: dict(policy or {}) for name, policy in policies.items()}


async def _nothing() -> None:
    """No store is there to look at."""
