"""What is stored under a key, and what speaks against it. Pure."""

from index.entry import Entry
from index.store import Examined, Lookup
from proxy.answer.freshness import Fresh, Stale
from proxy.answer.freshness import judge as judge_freshness
from proxy.explaining.meanings import meaning_of
from proxy.explaining.peeking import lookup_of
from proxy.explaining.views import EntryView, ExactView, MovedTag
from proxy.question import Question


def exactness(question: Question, examined: Examined, *, now: float) -> ExactView:
    """Judge the entry as a lookup of the question would."""
    lookup = lookup_of(examined, now=now, tags=question.tags)
    entry = examined.entry
    view = ExactView(
        state=lookup.reason,
        meaning=meaning_of(lookup.reason),
        entry=None if entry is None else _view(entry),
        sequence=examined.snapshot.sequence,
        moved=_moved(examined),
    )
    if lookup.entry is None:
        return view
    return _with_freshness(view, question, lookup, now)


def _with_freshness(view: ExactView, question: Question, lookup: Lookup, now: float) -> ExactView:
    policy, entry = question.route.policy, lookup.entry
    assert policy is not None
    assert entry is not None
    state = judge_freshness(
        entry,
        now=now,
        directives=question.call.directives,
        policy=policy,
        soft_purged=lookup.soft_purged,
    )
    match state:
        case Fresh(age_s=age_s, ttl_s=ttl_s):
            return _said(view, "fresh", age_s, ttl_s)
        case Stale(age_s=age_s, ttl_s=ttl_s):
            return _said(view, "stale", age_s, ttl_s)
        case unusable:
            age_s, ttl_s = now - entry.created_at, entry.expires_at - now
            return _said(view, unusable.reason, age_s, ttl_s)


def _said(view: ExactView, state: str, age_s: float, ttl_s: float) -> ExactView:
    return ExactView(
        state=state,
        meaning=meaning_of(state),
        entry=view.entry,
        age_s=age_s,
        ttl_s=ttl_s,
        sequence=view.sequence,
        moved=view.moved,
    )


def _moved(examined: Examined) -> tuple[MovedTag, ...]:
    """The purges of the tags in question, the latest first."""
    entry = examined.entry
    seen = None if entry is None else entry.snapshot.sequence
    moved = [
        MovedTag(
            tag=tag,
            sequence=mark.sequence,
            soft=mark.soft > mark.hard,
            covers=seen is not None and mark.sequence > seen and _has(entry, tag),
        )
        for tag, mark in examined.marks.items()
    ]
    return tuple(sorted(moved, key=lambda one: -one.sequence))


def _has(entry: Entry | None, tag: str) -> bool:
    """Also what every entry carries without naming it."""
    return entry is not None and (tag in entry.tags or tag == "*" or tag.startswith("key:"))


def _view(entry: Entry) -> EntryView:
    return EntryView(
        created_at=entry.created_at,
        expires_at=entry.expires_at,
        keep_until=entry.keep_until,
        tenant=entry.tenant,
        model=entry.model,
        upstream=entry.upstream,
        tags=entry.tags,
        sequence=entry.snapshot.sequence,
        input_tokens=entry.input_tokens,
        output_tokens=entry.output_tokens,
    )
