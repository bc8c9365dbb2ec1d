"""The text of one answer, out of its tokens as they come."""

import codecs
from collections.abc import Sequence


class Detokeniser:
    """Ids to text. A character is held back until it is whole."""

    def __init__(self, pieces: Sequence[bytes], *, skip_space: bool = False) -> None:
        """`pieces` are the bytes of each token; `skip_space` drops one space at the beginning."""
        self._pieces = pieces
        self._skip_space = skip_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that became whole with this token, often empty within a character."""
        piece = self._pieces[token_id]
        if self._skip_space and piece:
            self._skip_space = False
            piece = piece.removeprefix(b" ")
        return self._decoder.decode(piece)

    def close(self) -> str:
        """What is left: U+FFFD where the answer ends inside a character, else nothing."""
        return self._decoder.decode(b"", final=True)
