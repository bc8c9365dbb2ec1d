"""What an embedder can read: scripts that it was trained on, texts that fit whole."""

from tokenizers import Tokenizer

from index.modelfiles import ModelFiles
from index.scripts import is_written_in

_MAX_BYTES_PER_TOKEN = 12
"""Text beyond this for every token of the window is too long without being tokenised."""


class Window:
    """Of a model whose tokenizer is here."""

    def __init__(self, files: ModelFiles, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._scripts = files.scripts
        self._prefix = files.prefix
        self._max_tokens = files.max_tokens

    def refuses(self, text: str) -> str | None:
        """`empty` | `script` | `too_long` | None."""
        if not text or text.isspace():
            return "empty"
        if not is_written_in(text, self._scripts):
            return "script"
        return None if self._fits(self._prefix + text) else "too_long"

    def _fits(self, text: str) -> bool:
        # Each token stands for a byte at least, and there are two special ones.
        if text.isascii() and len(text) + 2 <= self._max_tokens:
            return True
        if len(text) > self._max_tokens * _MAX_BYTES_PER_TOKEN:
            return False
        return len(self._tokenizer.encode(text).ids) <= self._max_tokens
