"""The language of a text, as far as its script and its smallest words give it away."""

import msgspec

from index.embedders.scripts import scripts_of
from index.guards.guard import Guard
from index.guards.text import Text
from index.guards.wordset import wordset

_SMALL_WORDS = {
    "en": wordset("the is are what how of and to do does can my i you it why who a an"),
    "es": wordset("el los las que como es una por para y cuál qué cómo mi dónde está"),
    "fr": wordset("le les des est que comment quel quelle une pour dans et je mon ma où"),
    "de": wordset("der das ist wie und ein eine ich nicht was wo mein meine für zu"),
    "pt": wordset("o os uma que como é para meu minha não qual onde em um"),
    "it": wordset("il gli che come è una per mio mia non quale dove di sono"),
    "nl": wordset("het een hoe wat ik van mijn niet waar zijn voor met"),
}
_LEAST_WORDS = 2


class Language(msgspec.Struct, frozen=True):
    """`name` is empty where too little was seen."""

    scripts: frozenset[str]
    name: str


def _read(text: Text) -> Language:
    words = set(text.words)
    counts = {name: len(words & small) for name, small in _SMALL_WORDS.items()}
    best = max(counts, key=lambda name: counts[name])
    return Language(scripts_of(text.source), best if counts[best] >= _LEAST_WORDS else "")


def _compare(a: Language, b: Language) -> str | None:
    if a.scripts != b.scripts or (a.name and b.name and a.name != b.name):
        return "language"
    return None


LANGUAGE = Guard(name="language", read=_read, compare=_compare)
