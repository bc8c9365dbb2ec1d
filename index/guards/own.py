"""Rules of a policy's own: words, or matches of a pattern, in which two prompts must agree."""

import re
from collections.abc import Iterable

import msgspec

from index.volatility.ownpattern import OwnPattern, own_pattern


class OwnRule(msgspec.Struct, frozen=True):
    """Two prompts are told apart when what is found in them is not the same, order aside."""

    pattern: OwnPattern

    def differs(self, a: str, b: str) -> bool:
        """Whether the rule tells the two apart, or takes too long to say. Symmetric."""
        ours, theirs = self.pattern.all_in(a), self.pattern.all_in(b)
        return ours is None or ours != theirs


def rule_of_words(words: Iterable[str]) -> OwnRule:
    """A rule over whole words or phrases, letter case aside. Characters that are written without
    spaces between words (Chinese) are found anywhere."""
    longest_first = sorted((word.strip() for word in words), key=len, reverse=True)
    return rule_of_pattern("|".join(map(_bounded, longest_first)))


def rule_of_pattern(pattern: str) -> OwnRule:
    """A rule over matches of a regular expression, letter case aside. Raises ValueError."""
    return OwnRule(own_pattern(pattern))


def _bounded(word: str) -> str:
    before = r"(?<![^\W\u3400-\u9fff])" if _ends_in_letters(word[0]) else ""
    after = r"(?![^\W\u3400-\u9fff])" if _ends_in_letters(word[-1]) else ""
    return before + re.escape(word) + after


def _ends_in_letters(char: str) -> bool:
    return char.isalnum() and not "\u3400" <= char <= "\u9fff"
