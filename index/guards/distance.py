"""Whether two words are one word, spelt or inflected in two ways."""

from index.guards.known import is_known
from index.guards.wordset import wordset

_LEAST_LENGTH = 4
_LEAST_ROOT = 5
_MAX_ENDING = 4
_ENDINGS = wordset(
    "e i d y s es al ial ical ic ially ally ation ion ive ment ness ous ance ence ant ent able ible"
    " abl ibl ful ity iti ari ary ate at ize ise iz is anc enc iv isation ization fi"
) | {""}
"""With which one root is put into another form."""


def alike(a: str, b: str) -> bool:
    """A slip of the keyboard apart, or two forms of one root.

    Short words are never alike: too many of them differ by a letter.
    """
    return min(len(a), len(b)) >= _LEAST_LENGTH and (_are_forms(a, b) or mistyped(a, b))


def mistyped(a: str, b: str) -> bool:
    """Whether one letter is wrong, missing, surplus or exchanged with its neighbour. Two words that
    there are both are no slips of one another: `desert` is not `dessert`."""
    if abs(len(a) - len(b)) > 1 or (is_known(a) and is_known(b)):
        return False
    start = _shared_prefix(a, b)
    end = min(_shared_prefix(a[::-1], b[::-1]), len(a) - start, len(b) - start)
    ours, theirs = a[start : len(a) - end], b[start : len(b) - end]
    return max(len(ours), len(theirs)) <= 1 or (len(ours) == 2 and ours == theirs[::-1])


def _are_forms(a: str, b: str) -> bool:
    root = _shared_prefix(a, b)
    return (
        root >= max(_LEAST_ROOT, len(a) - _MAX_ENDING, len(b) - _MAX_ENDING)
        and a[root:] in _ENDINGS
        and b[root:] in _ENDINGS
    )


def _shared_prefix(a: str, b: str) -> int:
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length
