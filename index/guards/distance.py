"""Whether two words are one word, spelt or inflected in two ways."""

_LEAST_LENGTH = 4
_LEAST_LENGTH_FOR_TWO = 9
_LEAST_PREFIX = 5
_MAX_LENGTH = 40
"""What is longer is no word that somebody could misspell; and comparing takes time squared."""


def alike(a: str, b: str) -> bool:
    """A slip of the keyboard apart, or two forms of one root.

    Short words are never alike: too many of them differ by a letter.
    """
    shorter, longer = sorted((a, b), key=len)
    if not _LEAST_LENGTH <= len(shorter) <= len(longer) <= _MAX_LENGTH:
        return False
    if shorter[0] == longer[0] and _shared_prefix(a, b) >= max(_LEAST_PREFIX, len(longer) - 4):
        return True
    limit = 2 if len(shorter) >= _LEAST_LENGTH_FOR_TWO else 1
    return misspelt(a, b, limit=limit)


def misspelt(a: str, b: str, *, limit: int) -> bool:
    """Whether at most `limit` letters are wrong, missing, surplus or exchanged with a neighbour
    (optimal string alignment distance)."""
    if abs(len(a) - len(b)) > limit or max(len(a), len(b)) > _MAX_LENGTH:
        return False
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        older, before, row = before, row, [i]
        for j, y in enumerate(b, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return False
    return row[-1] <= limit


def _shared_prefix(a: str, b: str) -> int:
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length
