"""Folding of text before it is keyed: differences that a policy says do not make another question.

Only user and system messages are folded, only for the key; what is forwarded is the original.
"""

import re
import unicodedata
from collections.abc import Callable, Collection
from typing import Any

from proxy.call import Surface
from proxy.request.budget import Budget
from proxy.request.conversation import map_texts
from proxy.request.noise import renumber, strip
from proxy.settings.config import Fold

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_SIGN = re.compile(
    r"""[`<\\{}\[\]|=^"“”„«»「」『』＂＇｀]|~~~|(?<!\w)/|(?<!\w)['‘’‚‹]|['’›](?!\w)"""
)
"""Of code or of a quotation. An apostrophe within a word is none."""
_PLAIN = re.compile(r"(?!(?:\d{1,9}|\w)[.)][ \t])\w")
"""How a line of prose begins: no list, whose gap after the mark may make code of the rest."""
_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")
_DOUBLED = re.compile(r"(?<=\S)  (?=\S)")
_BLANK_LINES = re.compile(r"(?:[ \t]*[\r\n])*")
_IN_PARTS: frozenset[Fold] = frozenset({"line_endings"})
"""What a part of a text may lose: it may begin or end within a word, or within code."""


def fold(text: str, folds: Collection[Fold]) -> str:
    """Fold one text. The order of `folds` does not matter.

    In doubt nothing is folded: another question must not get this one's answer. So `unicode`,
    `collapse_spaces` and `casefold` end before the first line with a sign of code or of a
    quotation, and leave indented lines alone; `trim` keeps the first line's indentation; and tabs,
    and wider gaps in texts of several lines, may be columns.
    """
    if "line_endings" in folds and "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "trim" in folds:
        text = text[_end_of(_BLANK_LINES, text) :].rstrip(" \t\r\n")
    if "unicode" in folds and not text.isascii():
        text = _in_prose(text, _composed)
    if "collapse_spaces" in folds and "  " in text:
        gap = _DOUBLED if _has_lines(text) else _GAP
        text = _in_prose(text, lambda line: gap.sub(" ", line) if _PLAIN.match(line) else line)
    if "casefold" in folds:
        text = _in_prose(text, str.casefold)
        if "unicode" in folds and not text.isascii():
            text = _in_prose(text, _composed)
    return text


def normalize(
    surface: Surface,
    fields: dict[str, Any],
    folds: Collection[Fold],
    *,
    stripped: Collection[str] = (),
) -> dict[str, Any]:
    """`fields` with the text of user and system messages folded, without what `stripped` finds
    (`proxy.request.noise.strip`); nothing is modified. Raises TimeoutError when that takes too
    long."""
    if "message_ids" in folds:
        fields = renumber(surface, fields)
    if not folds and not stripped:
        return fields
    budget = Budget()
    in_parts = _IN_PARTS.intersection(folds)
    return map_texts(
        surface,
        fields,
        lambda text: fold(strip(text, stripped, budget), folds),
        in_parts=lambda text: fold(strip(text, stripped, budget), in_parts),
    )


def _in_prose(text: str, change: Callable[[str], str]) -> str:
    """Change the lines before the first sign of code, but for indented ones."""
    sign = _SIGN.search(text)
    end = len(text)
    if sign is not None:
        end = max(text.rfind("\n", 0, sign.start()), text.rfind("\r", 0, sign.start())) + 1
    lines = _LINE.findall(text[:end])
    return "".join(line if line[0] in " \t" else change(line) for line in lines) + text[end:]


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _has_lines(text: str) -> bool:
    inner = text.strip()
    return "\n" in inner or "\r" in inner


def _end_of(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.match(text)
    return 0 if match is None else match.end()
