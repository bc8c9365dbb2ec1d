"""What one audited hit says: which of three answers is the odd one."""

from typing import Literal

import msgspec

Label = Literal["stored_only", "fresh_only", "all_differ", "agree", "unjudged"]
"""Who differs from the others: the stored answer; one of the two fresh ones; each; or none, as far
as one can see. `unjudged`: the answers are there, and nobody can say."""

LABELS: tuple[Label, ...] = ("stored_only", "fresh_only", "all_differ", "agree", "unjudged")


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Audited hits by their labels."""

    stored_only: int = 0
    fresh_only: int = 0
    all_differ: int = 0
    agree: int = 0
    unjudged: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.agree + self.fresh_only + self.suspect

    @property
    def suspect(self) -> int:
        """Those whose stored answer no fresh one confirmed. What nobody could judge is among them:
        wrong hits are harder to judge than right ones, so leaving it out would flatter the rest."""
        return self.stored_only + self.all_differ + self.unjudged

    def __add__(self, other: "Counts") -> "Counts":
        """Those of both."""
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in LABELS})


def label_of(*, first: bool, second: bool, fresh: bool) -> Label:
    """From three comparisons: the stored answer agrees with the `first` fresh one, with the
    `second`, and the two `fresh` ones with each other.

    Noise can make two of three agreements; then nobody is the odd one.
    """
    match first, second, fresh:
        case False, False, True:
            return "stored_only"
        case (True, False, False) | (False, True, False):
            return "fresh_only"
        case False, False, False:
            return "all_differ"
        case _:
            return "agree"
