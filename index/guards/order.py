"""Words that order things in time: before is not after."""

from index.guards.guard import Guard
from index.guards.text import Text

_WORDS = {
    word: meaning
    for meaning, words in {
        "before": "before prior until till 前",
        "after": "after afterwards following 后",
        "since": "since",
        "during": "during while whilst",
        "earlier": "previously earlier formerly ago",
        "later": "later",
        "next": "next upcoming",
        "last": "last previous",
    }.items()
    for word in words.split()
}


def _read(text: Text) -> tuple[str, ...]:
    return tuple(_WORDS[word] for word in text.words if word in _WORDS)


def _compare(a: tuple[str, ...], b: tuple[str, ...]) -> str | None:
    return "order"


ORDER = Guard(name="order", read=_read, compare=_compare)
