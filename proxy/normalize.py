"""Folding of text before it is keyed: what a policy says does not make another question.

Only user and system messages are folded, only for the key; what is forwarded is the original.
"""

import re
import unicodedata
from collections.abc import Callable, Collection
from typing import Any

from proxy.call import Surface
from proxy.config import Fold
from proxy.conversation import map_texts

_CODE = re.compile(
    r"""
      ^\ {0,3}(?P<fence>`{3,}|~{3,}) [^\n]* (?:\n .*?)?? (?: ^\ {0,3}(?P=fence)[`~]*[ \t]*$ | \Z)
    | ^(?:\ {4}|\t) [^\n]* $                    # an indented line
    | (?P<ticks>`+) (?!`) .+? (?<!`) (?P=ticks) (?!`)
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
"""Code in Markdown: fenced blocks (an open fence reaches to the end), indented lines, spans."""

_GAP = re.compile(r"(?<=\S)[ \t]{2,}")
"""More than one blank after a word. Blanks that begin a line are indentation and stay."""


def fold(text: str, folds: Collection[Fold]) -> str:
    """Fold one text. The order of `folds` does not matter; folding twice changes nothing more."""
    if "line_endings" in folds:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "unicode" in folds:
        text = unicodedata.normalize("NFC", text)
    if "collapse_spaces" in folds:
        text = _outside_code(text, lambda prose: _GAP.sub(" ", prose))
    if "casefold" in folds:
        text = _outside_code(text, str.casefold)
        if "unicode" in folds:
            text = unicodedata.normalize("NFC", text)
    if "trim" in folds:
        text = text.strip()
    return text


def normalize(surface: Surface, fields: dict[str, Any], folds: Collection[Fold]) -> dict[str, Any]:
    """`fields` with the text of user and system messages folded; nothing is modified."""
    if not folds:
        return fields
    return map_texts(surface, fields, lambda text: fold(text, folds))


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    pieces, end = [], 0
    for code in _CODE.finditer(text):
        pieces += [change(text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, change(text[end:])])
