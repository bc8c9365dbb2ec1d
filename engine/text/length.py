"""Texts that cannot fit, told before all of them is split into tokens.

That takes more than a second for a megabyte, in which the engine makes no step.
"""

from engine.errors import RequestRefused
from engine.text.tokenizer import Tokenizer

_BEGINNING_CHARS = 16
"""For each token that fits: of ordinary text, a beginning so long has four times as many."""
_MARGIN = 2
"""The beginning of a text may be split otherwise than as a part of it, and a vocabulary may drop
some of it, such as spaces: what is refused is too long by more than that can make of it."""


def refuse_too_long(text: str, tokenizer: Tokenizer, *, max_tokens: int) -> None:
    """Raises RequestRefused where the text has more tokens for certain. Most of what is too long is
    found here, the rest when it is split; that never takes more than what the longest tokens of the
    vocabulary can spell."""
    beginning = text[: max_tokens * _BEGINNING_CHARS]
    if len(beginning) == len(text):
        return
    is_longest = len(text) > _MARGIN * max_tokens * tokenizer.longest_text
    if is_longest or len(tokenizer.encode(beginning)) > _MARGIN * max_tokens:
        raise RequestRefused(
            f"This model's maximum context length is {max_tokens} tokens. The prompt has more. "
            "Shorten it.",
            code="context_length_exceeded",
        )
