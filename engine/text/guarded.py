"""Encodes text in which some pieces were written by users, and are plain whatever they spell."""

import re
from collections.abc import Callable, Collection

from engine.text.shield import any_of
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary.vocabulary import bare


class GuardedEncoder:
    """For one template: cuts a rendered text at the tokens that the template writes."""

    def __init__(self, tokenizer: Tokenizer, texts: Collection[str]) -> None:
        """`texts` are the spellings of the added tokens that users may not write."""
        vocabulary = tokenizer.vocabulary
        tokens = vocabulary.outer.get_added_tokens_decoder()
        self._tokenizer = tokenizer
        wanted = frozenset(texts)
        self._ids = {token.content: i for i, token in tokens.items() if token.content in wanted}
        self._guarded = frozenset(self._ids.values())
        # One group, so that `split` gives plain and guarded pieces in turn.
        self._pattern = re.compile(f"({any_of(texts).pattern})")
        free = [token for token in tokens.values() if token.content not in self._ids]
        self._outer = bare(vocabulary.outer, free)
        self._inner = bare(vocabulary.inner, free)

    def encode(self, text: str, *, literal: Callable[[str], str]) -> list[int]:
        """As `Tokenizer.encode`, but `literal` is applied to what stands between the guarded
        tokens: what it puts in becomes none of them."""
        ids: list[int] = []
        for position, piece in enumerate(self._pattern.split(text)):
            if position % 2:
                ids.append(self._ids[piece])
            elif piece:
                ids += self._plain(literal(piece), begins=position == 0)
        return self._tokenizer.begun(ids)

    def _plain(self, text: str, *, begins: bool) -> list[int]:
        outer = begins or self._tokenizer.spaces_after_controls
        ids = (self._outer if outer else self._inner).encode(text, add_special_tokens=False).ids
        return [part for token_id in ids for part in self._spelled(token_id)]

    def _spelled(self, token_id: int) -> list[int]:
        """Merges of some vocabularies come out at control tokens (`</` and `s>` in Llama 2's);
        such a one is written letter by letter."""
        if token_id not in self._guarded:
            return [token_id]
        letters = self._tokenizer.name(token_id)
        return [part for letter in letters for part in self._tokenizer.encode_plain(letter)]
