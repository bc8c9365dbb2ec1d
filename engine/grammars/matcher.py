"""Where one choice stands in its grammar."""

import re

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from engine.errors import GrammarFault

_MAX_MESSAGE = 300
_PLACE = re.compile(r"^at \d+\(\d+\): ")
_LINES = re.compile(r"\n +\d+ \| ")


class Matcher:
    """Not thread-safe."""

    def __init__(self, matcher: LLMatcher, *, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size

    def allowed(self) -> npt.NDArray[np.bool_]:
        """The tokens that may come next, end tokens only where the text is complete:
        [vocab_size]."""
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        bits = np.unpackbits(packed, count=self._vocab_size, bitorder="little")
        return bits.view(np.bool_)

    def allows(self, token_id: int) -> bool:
        """What `allowed` says of one token, before the text is complete: then it is no more."""
        return self._matcher.validate_tokens([token_id]) == 1

    def accept(self, token_id: int) -> None:
        """Go on to the state after a token. Raises GrammarFault where the grammar refuses it or
        has become too complex; the matcher is then of no more use."""
        if not self._matcher.consume_token(token_id):
            raise GrammarFault(first_line(self._matcher.get_error()))

    @property
    def complete(self) -> bool:
        """Nothing but the end can follow."""
        return self._matcher.is_stopped()


def first_line(error: str) -> str:
    """An error of the library without what it shows to its developers: the state, and the place
    and lines of the grammar that we made of a schema."""
    said = _LINES.split(error.partition("\n<state>")[0])[0]
    return _PLACE.sub("", said.strip())[:_MAX_MESSAGE]
