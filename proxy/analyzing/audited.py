"""What the audits of a running proxy say of the hits of a replay. Pure."""

import msgspec

from proxy.analyzing.report import Measured


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's audits, as `rejoinder stats` tells them."""

    audited: int
    """Hits by meaning whose answers were compared."""
    found_wrong: int
    wrong_at_least: float
    """Share of the hits, as `wrong_at_most`."""
    wrong_at_most: float


class _Stats(msgspec.Struct, frozen=True, kw_only=True):
    policies: dict[str, Audited]


def read_audited(stats: bytes) -> dict[str, Audited]:
    """By policy, from the JSON of `rejoinder stats`. Raises MsgspecError."""
    return msgspec.json.decode(stats, type=_Stats).policies


def measured(found: Audited | None, num_hits: int) -> Measured | None:
    """Of `num_hits` hits by meaning like those that were audited; None where none was.

    Expected by Laplace's rule of succession, (wrong + 1) / (audited + 2): what the judge's noise
    makes wrong is counted, so it is too many rather than too few. The bounds are the audits' own
    (`index.audit.bounds`), which leave noise out.
    """
    if found is None or not found.audited:
        return None
    return Measured(
        audited=found.audited,
        expected_wrong=(found.found_wrong + 1) / (found.audited + 2) * num_hits,
        wrong_at_least=found.wrong_at_least * num_hits,
        wrong_at_most=found.wrong_at_most * num_hits,
    )
