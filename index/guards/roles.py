"""Who did it to whom, where a passive with its agent turns the order of the words around."""

from index.guards.guard import Guard
from index.guards.text import Text
from index.guards.wordset import wordset

_BE = wordset("is are am was were be been being get gets got")
_PARTICIPLES = wordset("""
beaten become begun bent bet bitten blown born bought bound bred broken brought built burnt burst
caught chosen cost cut dealt done drawn driven drunk dug eaten fed felt fought forbidden forgiven
forgotten found freed frozen given ground grown heard held hidden hit hung hurt kept known laid
led left lent let lost made meant met mistaken outdone overcome overheard overthrown overtaken
paid put raised read ridden rung run said sat seen sent set sewn shaken shed shown shot shut slain
sold sought spent spoken spread spun stolen struck stuck stung sung sunk sworn swept swum taken
taught told torn thought thrown understood undone upset won withdrawn worn wound woven written
""")

_CHINESE_PASSIVE = "被"


def _read(text: Text) -> bool:
    """Whether there is a passive with an agent: a form of be, a participle, `by`."""
    words = text.words
    be = False
    participle = False
    for word in words:
        if word in _BE:
            be, participle = True, False
        elif be and (word in _PARTICIPLES or (word.endswith("ed") and len(word) > 3)):
            participle = True
        elif word == _CHINESE_PASSIVE or (participle and word == "by"):
            return True
    return False


def _compare(a: bool, b: bool) -> str | None:
    return "roles"


ROLES = Guard(name="roles", read=_read, compare=_compare)
