"""What an embedder can read: scripts that it was trained on, texts that fit whole and that its
vocabulary has words for.

All that a vocabulary has no words for (rare signs, and in WordPiece every word over 100 letters) is
one and the same unknown token: texts that differ there have one vector.
"""

from tokenizers import Tokenizer

from index.embedders.modelfiles import ModelFiles
from index.embedders.scripts import is_written_in

_UNKNOWN_SIGNS = "\U00013000\U00012000"
"""Of Egypt and of Sumer, which no vocabulary has."""
_MAX_BYTES_PER_TOKEN = 12
"""Text beyond this for every token of the window is too long without being tokenised."""


class Window:
    """Of a model whose tokenizer is here."""

    def __init__(self, files: ModelFiles, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._unknown = _unknown_token(tokenizer)
        self._scripts = files.scripts
        self._prefix = files.prefix
        self._max_tokens = files.max_tokens

    def refuses(self, text: str) -> str | None:
        """`empty` | `script` | `too_long` | `unreadable` | None."""
        if not text or text.isspace():
            return "empty"
        if not is_written_in(text, self._scripts):
            return "script"
        if len(text) > self._max_tokens * _MAX_BYTES_PER_TOKEN:
            return "too_long"
        ids = self._tokenizer.encode(self._prefix + text).ids
        if len(ids) > self._max_tokens:
            return "too_long"
        return "unreadable" if self._unknown in ids else None


def _unknown_token(tokenizer: Tokenizer) -> int | None:
    """Its id; None where every sign has tokens of its own, by its bytes."""
    one, other = (tokenizer.encode(sign, add_special_tokens=False).ids for sign in _UNKNOWN_SIGNS)
    return one[-1] if one and one == other else None
