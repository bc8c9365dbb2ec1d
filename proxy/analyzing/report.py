"""What an analysis comes to."""

import msgspec


class Near(msgspec.Struct, frozen=True, kw_only=True):
    """A hit by meaning that would not stand if a little more similarity were asked for."""

    asked: str
    stored: str
    similarity: float


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """What one change of the policy would bring, alone, in exact hits."""

    name: str
    value: str
    hits: int
    share: float
    """Of the policy's requests."""
    is_safe: bool
    """False: look at your prompts first, what is stripped may be what is asked for; or, of a TTL,
    older answers are given."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Wrong ones among the hits by meaning, as far as audits of others can tell."""

    audited: int
    """That many were."""
    expected_wrong: float
    wrong_at_least: float
    wrong_at_most: float
    """Both hold together with the policy's `confidence`."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What another `semantic` would bring: all requests of the policy replayed with it."""

    name: str
    hits: int
    """More than without it, exact and by meaning together; of one that is proposed, more than with
    all else that is proposed. Below 0: fewer."""
    share: float
    """Of the policy's requests."""
    exact: int
    """Fewer than now where questions are volatile: a policy with `semantic` does not keep those."""
    semantic: int
    num_doubtful: int
    doubtful: tuple[Near, ...]
    """The first of them."""
    wrong_at_least: int
    """Hits by meaning of two questions that the log itself calls wrong (`known_wrong`)."""
    wrong_at_most: float
    """By `max_error`: as many as its audits would let pass; without audits, all. Not measured."""
    is_proposed: bool


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Of the requests that a policy is for."""

    policy: str
    requests: int
    exact: int
    semantic: int
    misses: int
    bypassed: int
    reasons: dict[str, int]
    """Why requests were not hits."""
    input_tokens_saved: int
    output_tokens_saved: int
    money_saved: dict[str, float]
    """By currency, with the config's prices."""
    wrong_at_least: int
    """Hits by meaning of two questions that the log itself calls wrong (`known_wrong`): the proxy
    that wrote it no longer gives these."""
    wrong_at_most: float | None
    """Of the hits by meaning: as many as the policy's audits let pass before they close the tier;
    without audits, all. None: the policy does not answer by meaning."""
    measured: Measured | None
    """None without a proxy's stats, or where it has audited nothing yet."""
    num_doubtful: int
    doubtful: tuple[Near, ...]
    """The first of them."""
    gains: tuple[Gain, ...]
    """Best first."""
    trials: tuple[Trial, ...]
    """Empty without an embedder."""
    proposed_exact: int
    """Exact hits with all that is proposed."""
    diff: str
    """From the policy to the one that is proposed (unified); empty where nothing is."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole log."""

    lines: int
    unread: int
    problems: tuple[str, ...]
    """The first of the lines that could not be asked again."""
    uncached: int
    """Requests whose route has no cache, or that no route leads to."""
    has_times: bool
    """False: the log says not when requests came, so no answer has expired."""
    replays_meaning: bool
    method: str
    policies: tuple[PolicyReport, ...]
