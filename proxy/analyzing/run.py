"""From a log and a config to a report. Nothing is sent, stored or changed."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from proxy.analyzing.analysis import Analysis
from proxy.analyzing.audited import Audited
from proxy.analyzing.embedded import open_embedded
from proxy.analyzing.reading import Entry, read
from proxy.analyzing.replay import in_order, replay
from proxy.analyzing.report import Report
from proxy.analyzing.written import read_written
from proxy.deciding import Decider
from proxy.lookup.meaning import patterns_of_policy, rules_of_tiers
from proxy.observing.prices import Prices
from proxy.request.routing import Router
from proxy.settings.config import Config
from proxy.upstreams.base import Upstream
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
    " an answer is there as soon as it was asked for, so joined requests count as hits, and hits by"
    " meaning are served, whatever the audits came to. A log holds no answers, so it cannot tell"
    " which of these are wrong: at least those of two questions that its lines refuse as"
    " `known_wrong` (an audit or feedback said so); at most max_error of them, as long as the"
    " policy's own audits hold that bound (with its `confidence`; with `start: shadow` before a"
    " single one is served, with `audit: 0` never). What audits measured, where a proxy's stats are"
    " given, is carried over to the hits of the policy as it is, and to no other. Doubtful are the"
    " hits that would not stand if 0.02 more similarity were asked for. Tokens of a log without"
    " counts are guessed, four bytes each, and without answers."
)

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Of a named piece of work with so many steps."""


async def analyze(
    log: Path, config: Config, text: str, *, audited: Mapping[str, Audited], progress: Progress
) -> Report:
    """`text`: what `config` was read from; the embedder may have been added since. `audited`: by
    policy, what a proxy measured. Raises OSError, EmbedderFault."""
    entries: list[Entry] = []
    problems: list[str] = []
    num_unread = 0
    for one in read(log):
        if isinstance(one, Entry):
            entries.append(one)
            continue
        num_unread += 1
        if len(problems) < _MAX_PROBLEMS:
            where = f"{log.name}.1, line" if one.older else "line"
            problems.append(f"{where} {one.line}: {one.reason}")
    embedded = await open_embedded(config.embedder, max_texts=len(entries))
    upstreams = {
        name: make_upstream(name, one, engine=None, say=lambda _: None, look=_nothing)
        for name, one in config.upstreams.items()
    }
    decider_of = partial(_decider, upstreams=upstreams)
    try:
        with progress("replaying", len(entries)) as advance:
            base = await replay(
                in_order(entries),
                decider_of(config),
                prices=Prices(config.prices),
                embedded=embedded,
                advance=advance,
            )
        document = read_written(text)
        analysis = Analysis(
            base, config, document, audited=audited, decider_of=decider_of, embedded=embedded
        )
        with progress("trying changes", analysis.num_steps()) as advance:
            policies = await analysis.reports(advance)
    finally:
        await embedded.close()
        await close_all(upstreams.values())
    return Report(
        lines=len(entries) + num_unread,
        unread=num_unread,
        problems=tuple(problems),
        uncached=base.num_uncached,
        has_times=any(entry.has_time for entry in entries),
        replays_meaning=config.embedder is not None,
        method=_METHOD,
        policies=policies,
    )


def _decider(config: Config, *, upstreams: Mapping[str, Upstream]) -> Decider:
    return Decider(
        Router(config, upstreams),
        config.policies,
        secret=_SECRET,
        applications=[n for n, one in config.upstreams.items() if one.kind == "application"],
        patterns_of=patterns_of_policy,
        rules_of=rules_of_tiers(config.embedder),
    )


async def _nothing() -> None:
    """No store is there to look at."""
