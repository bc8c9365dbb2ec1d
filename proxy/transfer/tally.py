"""What became of each line, and of all of them."""

import enum

import msgspec

_MAX_PROBLEMS = 100


class Kind(enum.Enum):
    """Fates that a line can have."""

    STORED = "stored"
    PRESENT = "present"
    """The same or a newer answer was there."""
    EXPIRED = "expired"
    """Its time is up: nothing could serve it."""
    REFUSED = "refused"
    MARK = "mark"
    """Nothing to store."""


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` says why a line was refused."""

    kind: Kind
    reason: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """`line` counts from 1."""

    line: int
    reason: str


class Tally(msgspec.Struct, kw_only=True):
    """Counts of lines. `problems` names the first hundred that were refused. `ended`: the last mark
    was that of the end, so an export has come whole. Not frozen: it counts."""

    stored: int = 0
    present: int = 0
    expired: int = 0
    refused: int = 0
    ended: bool = False
    problems: list[Problem] = []

    def add(self, line: int, fate: Fate) -> None:
        """Count one line."""
        match fate.kind:
            case Kind.STORED:
                self.stored += 1
            case Kind.PRESENT:
                self.present += 1
            case Kind.EXPIRED:
                self.expired += 1
            case Kind.REFUSED:
                self.refused += 1
                if len(self.problems) < _MAX_PROBLEMS:
                    self.problems.append(Problem(line=line, reason=fate.reason))
            case Kind.MARK:
                pass


def refused(reason: str) -> Fate:
    """The fate of a line that may not be stored."""
    return Fate(kind=Kind.REFUSED, reason=reason)
