"""What kind of answer is asked for: a reason, a way, a person, a number, yes or no."""

from itertools import pairwise

from index.guards.auxiliaries import ASKING, WH
from index.guards.guard import Guard
from index.guards.text import Text
from index.guards.wordset import wordset

YES_NO = "yes_no"
_HOW_MEASURES = wordset(
    "many much long old far often tall big large fast deep high heavy hot cold hard good bad"
)
_NOUNS_ASKED = {
    "why": wordset("reason reasons cause causes"),
    "when": wordset("time date year"),
    "how": wordset("way ways method methods steps procedure process"),
    "where": wordset("place location"),
    "who": wordset("person"),
    "purpose": wordset("purpose use uses"),
    "how much": wordset("price cost amount dose fee"),
    "how old": wordset("age"),
    "how far": wordset("distance"),
}
_REQUESTS = {(verb, "you") for verb in ("can", "could", "would", "will")}
_CHOICES = frozenset({"which", "what", "who", "where"})
"""`which` may stand for any of the others, and they for it, but not for each other."""
_PURPOSES = {("use", "of"), ("uses", "of"), ("uses", "for"), ("purpose", "of")}


def read_question(text: Text) -> str:
    """`why`, `how`, `how many`, `who`, `yes_no`, …; empty for what is not a plain question."""
    words = text.words
    if words and words[0] in ASKING and words[:2] not in _REQUESTS:
        return "how" if _NOUNS_ASKED["how"].intersection(words[:6]) else YES_NO
    for place, word in enumerate(words):
        if word in WH:
            return _wh(word, words[place + 1 :])
    return "purpose" if words[:2] in _PURPOSES or _is_used_for(words) else ""


def _wh(word: str, rest: tuple[str, ...]) -> str:
    if word == "how" and rest:
        if rest[:2] == ("much", "time"):
            return "how long"
        if rest[0] == "come":
            return "why"
        return f"how {rest[0]}" if rest[0] in _HOW_MEASURES else "how"
    if word == "which":
        return word
    if word == "what":
        return _what(rest)
    return "who" if word in {"whom", "whose"} else word


def _what(rest: tuple[str, ...]) -> str:
    if rest[2:3] == ("do",) and rest[0] in ASKING:
        return "how"
    near = set(rest[:6])
    for kind, nouns in _NOUNS_ASKED.items():
        if nouns & near:
            return kind
    return "purpose" if _is_used_for(rest) or rest[-1:] == ("for",) else "what"


def _is_used_for(words: tuple[str, ...]) -> bool:
    return ("used", "for") in pairwise(words)


def _compare(a: str, b: str) -> str | None:
    if "purpose" in {a, b}:
        return "question"
    if not (a and b) or ("which" in {a, b} and {a, b} <= _CHOICES):
        return None
    return "question"


QUESTION = Guard(name="question", read=read_question, compare=_compare)
