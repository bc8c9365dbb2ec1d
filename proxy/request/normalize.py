"""Folding of text before it is keyed: differences that a policy says do not make another question.

Only user and system messages are folded, only for the key; what is forwarded is the original.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec

from proxy.call import Surface
from proxy.request.conversation import map_texts
from proxy.request.noise import renumber, strip
from proxy.settings.config import Fold

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_INDENTED = re.compile(r" {4}| {0,3}\t")
_TICKS = re.compile("`+")
_GAP = re.compile(r"(?<=\S)[ \t]{2,}")
"""More than one blank after a word. Blanks that begin a line are indentation and stay."""


class _Piece(msgspec.Struct, frozen=True):
    text: str
    is_code: bool


def fold(text: str, folds: Collection[Fold]) -> str:
    """Fold one text. The order of `folds` does not matter.

    `collapse_spaces` and `casefold` leave Markdown code alone: fenced blocks, indented lines and
    code spans.
    """
    if "line_endings" in folds and "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "unicode" in folds and not text.isascii():
        text = unicodedata.normalize("NFC", text)
    if "collapse_spaces" in folds and ("  " in text or "\t" in text):
        text = _outside_code(text, lambda prose: _GAP.sub(" ", prose))
    if "casefold" in folds:
        text = _outside_code(text, str.casefold)
        if "unicode" in folds:
            text = unicodedata.normalize("NFC", text)
    if "trim" in folds:
        text = text.strip()
    return text


def normalize(
    surface: Surface,
    fields: dict[str, Any],
    folds: Collection[Fold],
    *,
    stripped: Collection[str] = (),
) -> dict[str, Any]:
    """`fields` with the text of user and system messages folded, without what `stripped` finds
    (`proxy.request.noise.strip`); nothing is modified."""
    if "message_ids" in folds:
        fields = renumber(surface, fields)
    if stripped:
        return map_texts(surface, fields, lambda text: fold(strip(text, stripped), folds))
    if not folds:
        return fields
    return map_texts(surface, fields, lambda text: fold(text, folds))


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    return "".join(
        piece.text if piece.is_code else change(piece.text)
        for block in _blocks(text)
        for piece in ((block,) if block.is_code else _spans(block.text))
    )


def _blocks(text: str) -> Iterator[_Piece]:
    """Lines of code and what lies between them. An open fence reaches to the end."""
    prose: list[str] = []
    fence = ""
    for line in _LINE.findall(text):
        mark = _FENCE.match(line)
        is_code = bool(fence) or mark is not None or _INDENTED.match(line) is not None
        if not fence and mark is not None:
            fence = mark[1]
        elif mark is not None and mark[1].startswith(fence) and not line[mark.end() :].strip():
            fence = ""
        if not is_code:
            prose.append(line)
            continue
        yield _Piece("".join(prose), is_code=False)
        yield _Piece(line, is_code=True)
        prose.clear()
    yield _Piece("".join(prose), is_code=False)


def _spans(text: str) -> Iterator[_Piece]:
    """Code spans and what lies between them: from a run of backticks to the next one as long.

    Each run is looked at once, so that no text takes more than linear time.
    """
    runs = list(_TICKS.finditer(text))
    later: dict[int, list[re.Match[str]]] = {}
    for run in reversed(runs):
        later.setdefault(len(run[0]), []).append(run)
    end = 0
    for run in runs:
        ends = later[len(run[0])]
        ends.pop()
        if run.start() < end or not ends:
            continue
        yield _Piece(text[end : run.start()], is_code=False)
        yield _Piece(text[run.start() : ends[-1].end()], is_code=True)
        end = ends[-1].end()
    yield _Piece(text[end:], is_code=False)
