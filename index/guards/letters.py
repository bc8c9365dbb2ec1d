"""Letters as they are written, where that says something: units, acronyms that are also words,
accents, and all letters in a question about letter case."""

import re
from collections import Counter
from itertools import groupby, product

import msgspec

from index.guards.distance import mistyped
from index.guards.guard import Guard
from index.guards.namesakes import Namesakes, are_others, read_namesakes
from index.guards.phrases import FUNCTION_WORDS, JOINTS
from index.guards.text import LOANS, Text, without_accents
from index.guards.wordset import wordset

_UNIT = re.compile(r"\d\s*((?:[kKMmGgTtPpnuµ]i?)?(?:[bB](?:ps|/s|it)?|g|W|Wh|V|A|Hz|[lL]|m|s))\b")
_SMALL_BYTES = wordset("kb mb gb tb")
_ACRONYMS = wordset(
    "us it aids who add ram led cat sat act ice nato sad pin gas mad cod lace sars seal swat"
    " pet can lan map"
)
"""Words that are something else in capitals."""
_KEYWORDS = wordset("null nil nan")
"""`Null` is a name of its own; `null` and `NULL` are one."""
_OF_ONE_NULL = wordset("java javascript js typescript sql mysql php kotlin dart json c# c++")
"""Beside these there is but one."""
_OF_FORMULAE = wordset(
    "symbol symbols formula formulae equation equations stand stands"
    " physics chemistry thermodynamics"
)
"""Beside these a single letter is written as it is meant: `S` and `s`."""
_SYMBOL_LENGTH = 2
"""`CO` and `Co`, `NO` and `No` are two things; written small throughout it is either."""
_OF_LETTER_CASE = wordset(
    "uppercase lowercase capitalize capitalise capitalized capitalised ascii camelcase"
)
_OF_SPELLING = wordset(
    "spell spells spelled spelt spelling rhyme rhymes rhyming anagram anagrams unscramble scramble"
    " scrambled cipher ciphertext decipher caesar rot morse decode decoded decrypt encode encrypt"
    " palindrome syllable syllables vowel vowels consonants letter letters word words reverse"
    " reversed backwards pronounce pronounced pronunciation acronym abbreviation typo dna rna"
    " codon codons"
)
_OF_WRITING = wordset("grammar grammatical correct correctly right")
_CONFUSED = wordset(
    "its it's your you're whose who's there their they're then than lets let's alot lot"
)
_AT_THE_END = wordset("its it's your you're whose who's their they're")
"""There these are talked of: `when do I use its`."""
_SPEAKING_OF = wordset("write use spell say type punctuate put")
_BESIDE_WHAT_IS_SPOKEN_OF = wordset(
    "correctly properly right correct in as at and or vs versus when"
)
"""`how do I write its correctly`; but `how do I write its name correctly` is about a name."""
_CORRESPONDENCE = wordset("write writes writing send cover mail post")
_LETTERS = wordset("letter letters")
_MAX_WORDS_OF_WRITING = 8
_LEAST_SLIP = 5
_WORDS_OF_ONE = wordset("a i")
_BEFORE_E = wordset(
    "artist bad bar bath bit breath can cap car cloth cod con cop cub cut din fad fat fin germ glob"
    " grim hat hid hop hug human kin kit loath local lob mad man mat mod mop moral not pan past pin"
    " plan plum pop quit rag rat rid rip rob rot sag scar scrap sham shin sit slat slid slop snip"
    " spin spit star strip swath tap teeth trip tub twin urban van wag wan war win wreath"
)
"""Another word with an `e` at the end, and no form of it: `breathe`, `plane`."""
_BEFORE_A_VERB = wordset(
    "to i you we they he she it not can could should will would may and then"
) | {""}
"""`may I resume it` is about no résumé."""
_ACCENTED_RESUME = "résumé"
_OF_COMPARING = wordset("difference differences between vs versus")


class Letters(msgspec.Struct, frozen=True):
    """What is compared as it is written, behind how it reads without case and accents."""

    written: frozenset[tuple[str, str]]
    spelled: frozenset[str] = frozenset()
    """Words that are talked of: `unscramble …`, `the difference between who and whom`."""
    in_two_cases: frozenset[str] = frozenset()
    """Words that the text itself writes in two ways: `is foo the same as Foo`."""
    in_question: frozenset[str] = frozenset()
    """Words as they are spelt, where it is asked whether they are right: a slip of one is meant."""
    before_e: frozenset[str] = frozenset()
    """Words that an `e` makes other words of, with that `e` or without."""
    operands: tuple[str, ...] = ()
    """Single letters in their order, where they stand for something: `divide a by b`."""
    namesakes: Namesakes = Namesakes()


def _read(text: Text) -> Letters:
    units = {(f"unit {unit.lower()}", _unit(unit)) for unit in _UNIT.findall(text.source)}
    symbols = set() if text.shouts else _symbols(text) | _cased(text)
    written = {(without_accents(word), word) for word in _words(text)}
    return Letters(
        written=frozenset(written | units | symbols),
        spelled=_spelled(text),
        in_two_cases=_in_two_cases(text),
        in_question=_in_question(text),
        before_e=_before_e(text),
        operands=_operands(text),
        namesakes=read_namesakes(text),
    )


def _compare(a: Letters, b: Letters) -> str | None:
    ours, theirs = dict(a.written - b.written), dict(b.written - a.written)
    if a.spelled - b.spelled and b.spelled - a.spelled:
        return "letters"
    if a.in_two_cases != b.in_two_cases:
        return "letters"
    if _respelt(a.in_question, b.in_question) or _is_longer(a.before_e, b.before_e):
        return "letters"
    if are_others(a.namesakes, b.namesakes):
        return "letters"
    if a.operands != b.operands and sorted(a.operands) == sorted(b.operands):
        return "letters"
    return None if ours.keys().isdisjoint(theirs) else "letters"


def _unit(written: str) -> str:
    # Written small throughout they are the usual bytes, and no bits.
    return written.upper() if written in _SMALL_BYTES else written


def _words(text: Text) -> set[str]:
    if not _OF_LETTER_CASE.isdisjoint(text.words):
        return set(text.raws[1:])
    shouts = text.shouts
    return {
        raw if _is_acronym(raw) and not shouts else _spelt(raw.lower(), before)
        for before, raw in zip(("", *text.words), text.raws, strict=False)
    }


def _spelt(word: str, before: str) -> str:
    """As usual: of some words it does not matter whether their accents are written."""
    if word == "resume" and before not in _BEFORE_A_VERB:
        return _ACCENTED_RESUME
    if word not in LOANS:
        return word
    bare = without_accents(word)
    return _ACCENTED_RESUME if bare == "resume" else bare


def _symbols(text: Text) -> set[tuple[str, str]]:
    """`Mg` is a metal, `mg` a weight; `MG` is whoever shouts."""
    return {
        (f"symbol {raw.lower()}", raw)
        for raw, start in zip(text.raws, text.starts, strict=True)
        if len(raw) == _SYMBOL_LENGTH and raw != "MG"
        if raw.isupper() or (raw.istitle() and not start) or raw == "mg"
    }


def _cased(text: Text) -> set[tuple[str, str]]:
    """Words whose capital letter says something, inside a sentence that is not in title case. Where
    all is written small nothing says what was meant, but of a symbol."""
    inside = [raw for raw, start in zip(text.raws, text.starts, strict=True) if not start]
    if 2 * sum(raw[0].isupper() for raw in inside) > len(inside) > 1:
        return set()
    of_formulae = not _OF_FORMULAE.isdisjoint(text.words)
    says_little = text.source.islower() or not _OF_ONE_NULL.isdisjoint(text.words)
    telling = frozenset[str]() if says_little else _KEYWORDS
    return {
        (f"cased {raw.lower()}", raw if len(raw) == 1 else str(raw.istitle()))
        for raw in inside
        if raw.lower() in telling or (of_formulae and len(raw) == 1)
    }


def _in_question(text: Text) -> frozenset[str]:
    words = frozenset(map(str.lower, text.raws))
    if len(text.words) > _MAX_WORDS_OF_WRITING:
        return frozenset()
    if text.raws and text.raws[-1].lower() in _AT_THE_END:
        return words & _CONFUSED
    spoken_of = _spoken_of(text)
    if spoken_of or _OF_WRITING.isdisjoint(text.words) or text.words[0] == "how":
        return spoken_of
    return frozenset(word for word in words if len(word) >= _LEAST_SLIP) | (words & _CONFUSED)


def _spoken_of(text: Text) -> frozenset[str]:
    """Of the words that are confused, those that are not used but named."""
    raws = [key for key, _ in groupby(map(str.lower, text.raws))]
    threes = zip(raws, raws[1:], (*raws[2:], "in"), strict=False)
    return frozenset(
        word
        for before, word, after in threes
        if before in _SPEAKING_OF and word in _CONFUSED and after in _BESIDE_WHAT_IS_SPOKEN_OF
    )


def _respelt(a: frozenset[str], b: frozenset[str]) -> bool:
    ones, others = a - b, b - a
    return any(
        mistyped(one, other) or _CONFUSED.issuperset((one, other))
        for one, other in product(ones, others)
    )


def _before_e(text: Text) -> frozenset[str]:
    return frozenset(word for word in text.words if word.removesuffix("e") in _BEFORE_E)


def _is_longer(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether one has `breath` where the other has `breathe`."""
    return not {word.removesuffix("e") for word in a - b}.isdisjoint(
        word.removesuffix("e") for word in b - a
    )


def _in_two_cases(text: Text) -> frozenset[str]:
    inner = {raw for raw, start in zip(text.raws, text.starts, strict=True) if not start}
    written = Counter(raw.lower() for raw in inner)
    return frozenset(word for word, times in written.items() if times > 1)


def _operands(text: Text) -> tuple[str, ...]:
    letters = tuple(word for word in text.words if len(word) == 1 and "a" <= word <= "z")
    return () if _WORDS_OF_ONE.issuperset(letters) else letters


def _spelled(text: Text) -> frozenset[str]:
    is_mail = not _CORRESPONDENCE.isdisjoint(text.words)
    if not (_OF_SPELLING - _LETTERS if is_mail else _OF_SPELLING).isdisjoint(text.words):
        return frozenset(text.words).difference(_OF_SPELLING, FUNCTION_WORDS)
    if _OF_COMPARING.isdisjoint(text.words):
        return frozenset()
    joints = (place for place, word in enumerate(text.words) if word in JOINTS)
    beside = (place + step for place in joints for step in (-1, 1))
    return frozenset(
        text.raws[place].lower()
        for place in beside
        if 0 <= place < len(text.words) and text.words[place] in FUNCTION_WORDS
    )


def _is_acronym(raw: str) -> bool:
    return raw.isupper() and raw.lower() in _ACRONYMS


LETTERS = Guard(name="letters", read=_read, compare=_compare)
