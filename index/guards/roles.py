"""Who did it to whom, where a passive with its agent turns the order of the words around."""

from index.guards.guard import Guard
from index.guards.text import Text
from index.guards.wordset import wordset

_BE = wordset("is are am was were be been being get gets got")
_PARTICIPLES = wordset(
    "made done given taken written known seen shown beaten bitten driven eaten chosen broken caught"
    " bought built brought found held hit hurt kept led left lost met paid put read said sold sent"
    " shot spoken stolen taught told thought thrown understood won worn run born drawn"
    " forgiven"
)


def _read(text: Text) -> bool:
    """Whether there is a passive with an agent: a form of be, a participle, `by`."""
    words = text.words
    be = False
    participle = False
    for word in words:
        if word in _BE:
            be, participle = True, False
        elif be and (word in _PARTICIPLES or (word.endswith("ed") and len(word) > 4)):
            participle = True
        elif participle and word == "by":
            return True
    return False


def _compare(a: bool, b: bool) -> str | None:
    return "roles"


ROLES = Guard(name="roles", read=_read, compare=_compare)
