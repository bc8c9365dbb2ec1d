"""One semantic tier as a process knows it."""

import hashlib
from collections import Counter
from collections.abc import Mapping

import msgspec

from index.audit.label import Label
from index.audit.standing import (
    Standing,
    Terms,
    hits_field,
    label_field,
    reported_field,
    stand,
)
from proxy.settings.semantic import Semantic
from proxy.settings.units import Duration, to_config

PAIRS = "pairs"
"""Field that counts the pairs of questions that are known to be wrong."""
KNOWN_WRONG = "known_wrong"
"""Why such a pair's answer is not given."""


class Tier:
    """What a policy's answers by meaning have come to, with one embedder and under one set of
    settings: the sum of all processes, as far as the store has told."""

    def __init__(self, policy: str, *, name: str, terms: Terms) -> None:
        """`name`: of its counters in the store."""
        self.policy = policy
        self.name = name
        self.terms = terms
        self.standing: Standing | None = None
        """None until the store has told; nothing is served by meaning before."""
        self.pending: Counter[str] = Counter()
        """Counted here and not yet told."""
        self.in_doubt: Counter[str] = Counter()
        """Told, and nobody knows whether the store has heard it."""
        self.num_told = 0
        """What the store has counted of tellings, by this process and those in its slot."""
        self.wrong_pairs: Mapping[str, int] = {}
        """Pairs of questions that share no answer any more; the greater the number, the later it
        was found."""
        self.untold_pairs: set[str] = set()
        """Found here, and not yet told."""
        self.num_pairs_seen = 0
        self.is_full = False
        """More pairs were wrong than are remembered; that was said."""
        self.totals: Mapping[str, int] = {}
        """What the store had when it was asked last."""

    def learn(self, totals: Mapping[str, int]) -> None:
        """What the store has now; it alone counts, also where it has lost what it had."""
        if self.standing is None or totals != self.totals:
            self.totals = totals
            self.standing = stand(totals, self.terms)

    def count_hit(self, standing: Standing) -> None:
        """A hit was served."""
        self.pending[hits_field(standing)] += 1

    def count_label(self, standing: Standing, label: Label, *, step: int) -> None:
        """See `index.audit.standing.label_field`."""
        self.pending[label_field(standing, label, step=step)] += 1

    def refuse(self, pair: str) -> None:
        """These two questions never again share an answer, or not until as many others were
        refused after them as are remembered."""
        if pair not in self.wrong_pairs:
            self.untold_pairs.add(pair)

    def refuses(self, pair: str) -> bool:
        """They were found not to share an answer."""
        return pair in self.wrong_pairs or pair in self.untold_pairs

    def count_report(self, standing: Standing) -> None:
        """A user says that a hit was wrong."""
        self.pending[reported_field(standing.epoch)] += 1


class Mark(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is needed to audit a hit."""

    tier: Tier
    standing: Standing
    """When it was found."""
    pair: str
    """Of its two questions; see `pair_of`."""


def pair_of(scope: str, one: str, other: str) -> str:
    """A name for two questions of a scope, whichever way round, that does not tell them."""
    first, second = sorted((one, other))
    digest = hashlib.sha256()
    for part in (scope, first, second):
        raw = part.encode()
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()[:32]


def mark_of(tier: Tier, *, scope: str, one: str, other: str) -> Mark | None:
    """For a hit of a tier whose standing is known; None where it is known to be wrong."""
    assert tier.standing is not None
    pair = pair_of(scope, one, other)
    if tier.refuses(pair):
        return None
    return Mark(tier=tier, standing=tier.standing, pair=pair)


def name_of(policy: str, semantic: Semantic, *, embedder: str) -> str:
    """Of the counters: another for everything that makes other hits, or other labels."""
    alike = msgspec.structs.replace(semantic, audit=0.0, candidates=1, deadline=Duration(0))
    written = msgspec.json.encode(
        (1, policy, embedder, alike), enc_hook=to_config, order="deterministic"
    )
    return f"audit:{hashlib.sha256(written).hexdigest()[:32]}"


def terms_of(semantic: Semantic) -> Terms:
    """What its settings ask for."""
    return Terms(
        max_error=semantic.max_error,
        confidence=semantic.confidence,
        misses=semantic.misses,
        starts_open=semantic.start == "open",
    )
