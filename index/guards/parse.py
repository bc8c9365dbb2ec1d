"""All guards, and a text read for all of them at once."""

from functools import lru_cache
from typing import Any

import msgspec

from index.guards.antonyms import ANTONYMS
from index.guards.chinese import has_chinese
from index.guards.code import CODE
from index.guards.content import Content, read_content
from index.guards.dates import DATES
from index.guards.guard import Guard
from index.guards.language import LANGUAGE
from index.guards.letters import LETTERS
from index.guards.logic import LOGIC
from index.guards.modality import MODALITY
from index.guards.names import NAMES
from index.guards.negation import NEGATION
from index.guards.numbers import NUMBERS
from index.guards.order import ORDER
from index.guards.pronouns import PRONOUNS
from index.guards.question import QUESTION, YES_NO, read_question
from index.guards.quotes import QUOTES
from index.guards.relations import RELATIONS
from index.guards.roles import ROLES
from index.guards.slips import squeeze
from index.guards.tense import TENSE
from index.guards.text import read_text
from index.guards.units import UNITS

GUARDS: tuple[Guard, ...] = (
    NUMBERS,
    NEGATION,
    UNITS,
    LETTERS,
    DATES,
    ORDER,
    PRONOUNS,
    TENSE,
    QUESTION,
    MODALITY,
    LOGIC,
    ROLES,
    RELATIONS,
    CODE,
    QUOTES,
    LANGUAGE,
    NAMES,
    ANTONYMS,
)
"""Cheapest and most telling first."""


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A text as the guards see it; `features` is parallel to `GUARDS`."""

    features: tuple[Any, ...]
    content: Content
    words: frozenset[str]
    written: str
    """The words as they are written, but for letter case and what stands between them."""
    squeezed: str
    yes_or_no: bool
    """Whether that is what is asked for."""
    chinese: bool
    """Whether there are Chinese words in it."""


@lru_cache(maxsize=4096)
def parse(text: str, *, is_but_plain: bool = False) -> Parsed:
    """Read a text for every guard. A pure function; what was read lately is kept."""
    words = read_text(text, is_but_plain=is_but_plain)
    return Parsed(
        features=tuple(guard.read(words) for guard in GUARDS),
        content=read_content(words),
        words=frozenset(words.words),
        written=" ".join(words.raws).lower(),
        squeezed=squeeze(words),
        yes_or_no=read_question(words) == YES_NO,
        chinese=has_chinese(text),
    )


def parse_both(text: str, other: str) -> tuple[Parsed, Parsed]:
    """Read two texts beside each other: where they differ in their commas alone, `but` says the
    same in both."""
    a, b = parse(text), parse(other)
    if a.words != b.words and a.written == b.written:
        return parse(text, is_but_plain=True), parse(other, is_but_plain=True)
    return a, b
