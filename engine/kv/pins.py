"""Beginnings of prompts whose pages stay."""

import itertools
from collections.abc import Callable, Sequence

_FOLLOWING = ("", " a", "\n\n1", "z")
"""What may come after a text, to see which of its tokens do not mind."""

Encode = Callable[[str], Sequence[int]]


class Pins:
    """What the config names, as token ids."""

    def __init__(self, texts: Sequence[str], *, encoders: Sequence[Encode]) -> None:
        """`encoders`: the ways in which a prompt may begin with a text, such as a system prompt
        through the chat template, or a completion's prompt."""
        self._beginnings = [_beginning(text, encode) for text in texts for encode in encoders]

    def num_pinned(self, prompt_ids: Sequence[int]) -> int:
        """So many tokens of the prompt belong to a text that is pinned."""
        matching = [b for b in self._beginnings if list(prompt_ids[: len(b)]) == b]
        return max(map(len, matching), default=0)


def _beginning(text: str, encode: Encode) -> list[int]:
    """The tokens that every prompt has which begins with the text, whatever follows it."""
    ways = [encode(text + end) for end in _FOLLOWING]
    together = itertools.takewhile(lambda ids: len(set(ids)) == 1, zip(*ways, strict=False))
    return [ids[0] for ids in together]
