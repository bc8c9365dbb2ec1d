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


_WISHES = {("i", "want"), ("you", "want"), ("we", "want"), ("i", "need"), ("you", "need")}
"""`if I want to …, what should I do` sets no condition."""


def _read(text: Text) -> frozenset[str]:
    words = text.words
    found = {_WORDS[word] for word in words if word in _WORDS}
    if words[:1] == ("if",) and words[1:3] in _WISHES and words.count("if") == 1:
        found.discard("if")
    return frozenset(found)


def _compare(a: frozenset[str], b: frozenset[str]) -> str | None:
    return "logic"


LOGIC = Guard(name="logic", read=_read, compare=_compare)
