"""Who did it to whom, where a passive with its agent turns the order of the words around."""

import msgspec

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
_ASKING = wordset("what who which")
_DO = wordset("do does did")
_SHORTEST = 3


class Roles(msgspec.Struct, frozen=True):
    """Who is asked for, as far as the order of the words says it."""

    turned: bool
    """There is a passive with an agent: a form of be, a participle, `by`."""
    asked: tuple[str, str] | None
    """The verb, and whether its subject or its object is asked for: `what causes stress`, `what
    does stress cause`."""


def _read(text: Text) -> Roles:
    return Roles(_has_agent(text), _asked(text))


def _asked(text: Text) -> tuple[str, str] | None:
    words, stems = text.words, text.stems
    if len(words) < _SHORTEST or words[0] not in _ASKING:
        return None
    if words[1] in _DO:
        last = len(words) - 1
        while last and not words[last].isalpha():
            last -= 1
        return stems[last], "object"
    return stems[1], "subject"


def _has_agent(text: Text) -> bool:
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


def _compare(a: Roles, b: Roles) -> str | None:
    if a.turned != b.turned:
        return "roles"
    if a.asked is None or b.asked is None or a.asked[1] == b.asked[1]:
        return None
    return "roles" if a.asked[0] == b.asked[0] else None


ROLES = Guard(name="roles", read=_read, compare=_compare)
