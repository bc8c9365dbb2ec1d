"""Which scripts a text is written in, by the names that Unicode gives its letters."""

import unicodedata
from collections.abc import Iterable

LATIN = frozenset({"LATIN"})

_OF_LANGUAGE = {
    "ar": {"ARABIC"},
    "fa": {"ARABIC"},
    "ur": {"ARABIC"},
    "bg": {"CYRILLIC"},
    "ru": {"CYRILLIC"},
    "uk": {"CYRILLIC"},
    "sr": {"CYRILLIC", "LATIN"},
    "el": {"GREEK"},
    "he": {"HEBREW"},
    "hi": {"DEVANAGARI"},
    "mr": {"DEVANAGARI"},
    "bn": {"BENGALI"},
    "ta": {"TAMIL"},
    "te": {"TELUGU"},
    "th": {"THAI"},
    "ka": {"GEORGIAN"},
    "hy": {"ARMENIAN"},
    "ko": {"HANGUL", "CJK"},
    "ja": {"HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "CJK"},
    "zh": {"CJK"},
}
"""Languages (ISO 639-1) that are not written in Latin letters alone."""

SCRIPTS = LATIN.union(*_OF_LANGUAGE.values())
"""Those that can be named in a config."""


def scripts_of(text: str) -> frozenset[str]:
    """Scripts of the letters of `text`: `LATIN`, `CJK`, `CYRILLIC`, … (first word of the name).

    Compatibility forms (full width, ligatures) count as what they stand for. Digits, punctuation
    and emoji belong to no script.
    """
    if text.isascii():
        return LATIN if any(map(str.isalpha, text)) else frozenset()
    letters = {char for char in unicodedata.normalize("NFKC", text) if char.isalpha()}
    return frozenset(unicodedata.name(char, "UNKNOWN").split(" ", 1)[0] for char in letters)


def is_written_in(text: str, scripts: frozenset[str] | None) -> bool:
    """Whether all letters of `text` are of these scripts; None stands for every script."""
    return scripts is None or scripts_of(text) <= scripts


def scripts_of_languages(languages: Iterable[str]) -> frozenset[str]:
    """Scripts that these languages (ISO 639-1, with or without a region) are written in."""
    scripts: set[str] = set()
    for language in languages:
        scripts |= _OF_LANGUAGE.get(language.lower()[:2], LATIN)
    return frozenset(scripts)
