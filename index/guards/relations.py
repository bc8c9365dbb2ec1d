"""Who somebody is to others: kin (`my mother`, `my mother-in-law`), and rank (`the founder`, `a
co-founder`). Two such words never stand for one another."""

from itertools import pairwise

import msgspec

from index.guards.guard import Guard
from index.guards.known import is_known
from index.guards.phrases import FUNCTION_WORDS, JOINTS
from index.guards.stem import stem
from index.guards.text import Text
from index.guards.wordset import wordset

_KIN = {
    name: kin
    for kin, names in {
        "mother": "mother mothers mom mum mommy mummy mama",
        "father": "father fathers dad daddy papa",
        "parent": "parent parents",
        "brother": "brother brothers",
        "sister": "sister sisters",
        "sibling": "sibling siblings",
        "son": "son sons",
        "daughter": "daughter daughters",
        "uncle": "uncle uncles",
        "aunt": "aunt aunts auntie",
        "cousin": "cousin cousins",
        "nephew": "nephew nephews",
        "niece": "niece nieces",
        "grandmother": "grandmother grandmothers grandma granny",
        "grandfather": "grandfather grandfathers grandpa granddad",
        "grandparent": "grandparent grandparents",
        "grandchild": "grandchild grandchildren",
        "grandson": "grandson grandsons",
        "granddaughter": "granddaughter granddaughters",
        "twin": "twin twins",
        "godmother": "godmother",
        "godfather": "godfather",
        "spouse": "spouse spouses",
        "husband": "husband husbands",
        "wife": "wife wives",
        "in law": "laws",
        "widow": "widow widows",
        "widower": "widower widowers",
    }.items()
    for name in names.split()
}
_OF_KIN = wordset("step half foster adoptive great first second third late ex former")
_RANKS = wordset(
    "co vice deputy ex former acting assistant associate interim honorary retired student staff"
)
_ENDS_OF_ROLES = ("er", "or", "ist", "ant", "ent")
_LEAST_ROLE = 5


class Relations(msgspec.Struct, frozen=True):
    """`kin` with what makes another of it; `ranks` before which words; `stems`: all."""

    kin: frozenset[str]
    ranks: frozenset[tuple[str, str]]
    stems: frozenset[str]


def _read(text: Text) -> Relations:
    words = text.words
    pairs = tuple(pairwise(("", *words)))
    kin = {_kin(*pair) for pair in pairs if _bare(pair[1]) in _KIN}
    if ("in", "law") in pairs or ("in", "laws") in pairs:
        kin.add("in law")
    ranks = {
        (before, stem(word))
        for before, word in pairs
        if before in _RANKS and word not in FUNCTION_WORDS | JOINTS
    }
    ranks |= {("co", stem(word[2:])) for word in words if word[:2] == "co" and _is_role(word[2:])}
    return Relations(frozenset(kin), frozenset(ranks), frozenset(text.stems))


def _kin(before: str, word: str) -> str:
    kin = _KIN[_bare(word)]
    if word not in _KIN:
        return f"step {kin}"
    return f"{before} {kin}" if before in _OF_KIN else kin


def _bare(word: str) -> str:
    return word.removeprefix("step")


def _is_role(word: str) -> bool:
    return len(word) >= _LEAST_ROLE and word.endswith(_ENDS_OF_ROLES) and is_known(word)


def _compare(a: Relations, b: Relations) -> str | None:
    others = a.kin - b.kin and b.kin - a.kin
    in_law = "in law" in a.kin ^ b.kin
    return "relations" if others or in_law or _outranks(a, b) or _outranks(b, a) else None


def _outranks(a: Relations, b: Relations) -> bool:
    """Whether `b` names a role without the rank that it has in `a`."""
    return any(role in b.stems for _, role in a.ranks - b.ranks)


RELATIONS = Guard(name="relations", read=_read, compare=_compare)
