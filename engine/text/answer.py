"""The text of one choice, as its tokens come."""

from collections.abc import Sequence

from engine.text.stops import Cut, StopMatcher
from engine.text.tokenizer import Tokenizer


class Answer:
    """Bytes of tokens to whole characters to text that holds nothing of a stop string."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Sequence[str],
        *,
        shown_ids: frozenset[int] = frozenset(),
        after: int | None = None,
    ) -> None:
        """`shown_ids`: control tokens that are text here, spelled as in templates. `after` is the
        last token of the prompt (see `Tokenizer.detokeniser`)."""
        self._tokenizer = tokenizer
        self._shown_ids = shown_ids
        self._characters = tokenizer.detokeniser(after=after)
        self._stops = StopMatcher(stops)

    def push(self, token_id: int) -> Cut:
        """The text that can be shown now. After `stopped` nothing more is pushed."""
        if token_id in self._shown_ids:
            return self._stops.push(self._characters.close() + self._tokenizer.name(token_id))
        return self._stops.push(self._characters.push(token_id))

    def close(self) -> str:
        """What was held back, for an answer that no stop string ended."""
        last = self._stops.push(self._characters.close())
        return last.text if last.stopped else last.text + self._stops.close()
