"""Words that are names too: swift and Swift, turkey and Turkey, a march and March.

A capital letter inside a sentence tells them apart where the words around it show the common word
(`index.guards.commonwords`); else it was left out. It says nothing of whoever writes without
capitals, or with capitals everywhere; nor where other words settle which is meant.
"""

import msgspec

from index.guards.commonwords import is_common
from index.guards.text import Text
from index.guards.wordset import wordset

_PROGRAMS = wordset("""
api app apps array arrays class classes code coder coding compile compiler csv data debug decorator
dependency developer developers development dictionary error exception field file files framework
function functions import install installed installing integer interpreter json keyword language
languages learn library libraries list lists loop loops module modules object objects package
packages pip program programmer programming programs script scripting scripts server software sort
sql string strings struct syntax thread threads tutorial type types variable variables version
c c++ c# java javascript php
""")
_OF_A_SCREEN = wordset("""
account app browser button call calls cell channel chat click column computer crash dark desktop
document driver email extension file files folder font formula game games install installed key
keyboard laptop license linux mac meeting meetings microsoft mode notification password pc pivot
page plugin row screen screenshot server settings shortcut software spreadsheet sync tab tabs table
template update upgrade version video wifi 7 8 10 11 365
""")
_OF_FIRMS = wordset("""
account brand ceo company computer customer founder headquarters id ios ipad iphone laptop mac
macbook music phone revenue sales share shares stock stocks store support tv watch
""")
_OF_PLACES = wordset("""
capital city country countries currency embassy europe flag france germany government history italy
language map peru population president visa visit
""")
_OF_THE_SKY = wordset(
    "planet planets sun orbit moon venus mars saturn solar thermometer metal fish"
)
_OF_DATES = wordset(
    "monday tuesday wednesday thursday friday saturday sunday january february april june july"
    " september october november december month months"
)
_OF_MEALS = wordset(
    "roast cook oven thanksgiving recipe gravy meat bake eat porcelain plates bean beans"
)
_BEFORE_DATES = wordset(
    "in of this last next since until till by from early late mid every each during before after"
)

_SETTLED_BY = {
    word: settling
    for words, settling in (
        ("python ruby rust swift perl basic scratch dart go", _PROGRAMS),
        ("shell", wordset("bash command linux prompt script scripting terminal unix zsh")),
        ("windows word excel access office outlook edge safari", _OF_A_SCREEN),
        ("opera teams slack zoom discord steam", _OF_A_SCREEN),
        ("apple oracle target gap subway", _OF_FIRMS),
        ("turkey china lima cologne nice bath reading", _OF_PLACES | _OF_MEALS),
        ("mercury", _OF_THE_SKY),
        ("polish", _OF_PLACES | wordset("language translate translation speak nails shoes silver")),
        ("job", wordset("interview work salary google employer career bible testament")),
        ("lent", wordset("easter fast fasting ash bank money")),
        ("march august", _OF_DATES),
    )
    for word in words.split()
}
"""What else stands in a text that says which one is meant."""
_ENTERED = wordset("python ruby rust swift perl go excel word outlook slack discord safari")
"""What is done in, or with, where nothing follows: `how do I do it in excel`."""
_MONTHS = wordset("march august")
_TITLE_SHARE = 2
"""Where more than one in so many has a capital, inside a sentence, these say nothing."""


class Namesakes(msgspec.Struct, frozen=True):
    """Those of one text, inside its sentences."""

    capital: frozenset[str] = frozenset()
    small: frozenset[str] = frozenset()
    settled: frozenset[str] = frozenset()
    """Of both: those that other words settle."""
    common: frozenset[str] = frozenset()
    """Of both: those that their sentences show to be words."""
    has_capitals: bool = False
    """Others than theirs."""


def read_namesakes(text: Text) -> Namesakes:
    """Where the text is in title case, or in capitals, there are none."""
    found = _SETTLED_BY.keys() & set(text.words)
    inside = [raw for raw, start in zip(text.raws, text.starts, strict=True) if not start]
    num_capital = sum(raw[0].isupper() for raw in inside)
    if not found or text.shouts or _TITLE_SHARE * num_capital > len(inside) > 1:
        return Namesakes()
    capital = frozenset(raw.lower() for raw in inside if raw.istitle()) & found
    return Namesakes(
        capital=capital,
        small=frozenset(raw for raw in inside if raw in found),
        settled=frozenset(word for word in found if _is_settled(word, text)),
        common=frozenset(word for word in found if is_common(word, text)),
        has_capitals=text.source.lstrip()[:1].isupper()
        or any(raw[0].isupper() and raw.lower() not in capital for raw in inside),
    )


def are_others(a: Namesakes, b: Namesakes) -> bool:
    """Whether one has a name where the other has a word."""
    return _names(a, b) or _names(b, a)


def _names(a: Namesakes, b: Namesakes) -> bool:
    # Who writes no capitals at all, where the other does, means nothing by it.
    if a.has_capitals and not b.has_capitals and not b.capital:
        return False
    unsettled = (a.capital & b.small) - (a.settled & b.settled)
    return not unsettled.isdisjoint(a.common | b.common)


def _is_settled(word: str, text: Text) -> bool:
    if not _SETTLED_BY[word].isdisjoint((*text.words, *text.stems)):
        return True
    places = [place for place, other in enumerate(text.words) if other == word]
    if word in _MONTHS:
        return all(_is_date(text.words, place) for place in places)
    return word in _ENTERED and all(_is_in(text, place) for place in places)


def _is_date(words: tuple[str, ...], place: int) -> bool:
    beside = (*words[max(place - 1, 0) : place], *words[place + 1 : place + 2])
    return any(word[0].isdigit() for word in beside) or (
        place > 0 and words[place - 1] in _BEFORE_DATES
    )


def _is_in(text: Text, place: int) -> bool:
    """`… in python`, and no more or a pause after it."""
    ends = place + 1 == len(text.words) or text.pauses[place + 1]
    return ends and place > 1 and text.words[place - 1] in ("in", "with")
