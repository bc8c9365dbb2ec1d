"""And, or, only, both, all, at least: words that join and bound."""

from index.guards.guard import Guard
from index.guards.text import Text

_WORDS = {
    word: meaning
    for meaning, words in {
        "or": "or either",
        "only": "only solely",
        "both": "both",
        "if": "if unless whether",
        "except": "except besides",
        "more": "more",
        "less": "less fewer",
        "most": "most",
        "least": "least",
        "than": "than",
        "instead": "instead",
        "other": "other another else",
        "without": "without",
    }.items()
    for word in words.split()
}


def _read(text: Text) -> frozenset[str]:
    return frozenset(_WORDS[word] for word in text.words if word in _WORDS)


def _compare(a: frozenset[str], b: frozenset[str]) -> str | None:
    return "logic"


LOGIC = Guard(name="logic", read=_read, compare=_compare)
