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
    wrong_at_most: float
    """Of the hits by meaning: as many as the policy's audits let pass before they close the
    tier."""
    doubtful: tuple[Near, ...]
    gains: tuple[Gain, ...]
    """Best first."""
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
