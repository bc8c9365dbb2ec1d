"""Which of a sequence's keys and values stay in its pages. Pure arithmetic.

What goes depends on positions alone: not on how a prompt was cut into chunks, nor on who else is in
the batch. So a chunk never crosses a position at which something goes (`reach`).

Keys are kept after RoPE. Those that stay keep their positions, and attention, which knows a token
by the positions in its key and its query, sees them where they always were.
"""

import sys
from typing import Protocol

import msgspec

from engine.longcontext import LongContext

_STRIDES_A_WINDOW = 8
OBSERVED_TOKENS = 32
"""The last tokens of a prompt, whose attention says what of it matters."""


class Retention(Protocol):
    """Of one sequence. All numbers are tokens."""

    @property
    def shares(self) -> bool:
        """Its full pages are what any sequence with these tokens has: they may be found by others,
        and it may begin with those of others."""
        ...

    def reach(self, num_computed: int) -> int:
        """A chunk that begins here ends at this position at the latest."""
        ...

    def lost(self, num_computed: int) -> int:
        """So many are gone when so many have been computed."""
        ...

    def first_lost(self) -> int:
        """So many of the pages' tokens stay before those that go."""
        ...

    def held(self, num_computed: int, num_tokens: int) -> int:
        """The most that are in pages at once on the way from `num_computed` to `num_tokens`."""
        ...

    def longest(self, pool_tokens: int) -> int:
        """The most that a sequence may have in all if pages hold so many at once."""
        ...


class Everything(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing goes. See `Retention`."""

    @property
    def shares(self) -> bool:
        return True

    def reach(self, num_computed: int) -> int:
        return sys.maxsize

    def lost(self, num_computed: int) -> int:
        return 0

    def first_lost(self) -> int:
        return sys.maxsize

    def held(self, num_computed: int, num_tokens: int) -> int:
        return num_tokens

    def longest(self, pool_tokens: int) -> int:
        return pool_tokens


class SinksAndWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The first tokens and a window of the last ones, which moves on by `stride` at a time: a query
    sees at least the window, and less than a stride more. All are whole pages."""

    sinks: int
    window: int
    stride: int

    @property
    def shares(self) -> bool:
        return False

    def reach(self, num_computed: int) -> int:
        return self._kept + self.lost(num_computed) + self.stride

    def lost(self, num_computed: int) -> int:
        return max(0, num_computed - self._kept) // self.stride * self.stride

    def first_lost(self) -> int:
        return self.sinks

    def held(self, num_computed: int, num_tokens: int) -> int:
        return min(num_tokens - self.lost(num_computed), self._kept + self.stride)

    def longest(self, pool_tokens: int) -> int:
        return sys.maxsize if self._kept + self.stride <= pool_tokens else pool_tokens

    @property
    def _kept(self) -> int:
        return self.sinks + self.window


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Once the prompt is computed, `keep` of its tokens stay, the same number in each layer and KV
    head: whole pages. All of the answer stays."""

    num_prompt: int
    keep: int
    sinks: int

    @property
    def shares(self) -> bool:
        return False

    def reach(self, num_computed: int) -> int:
        return self.num_prompt if num_computed < self.num_prompt else sys.maxsize

    def lost(self, num_computed: int) -> int:
        return self.num_prompt - self.keep if num_computed >= self.num_prompt else 0

    def first_lost(self) -> int:
        return self.keep

    def held(self, num_computed: int, num_tokens: int) -> int:
        rest = num_tokens - self.lost(num_tokens)
        whole = num_computed >= self.num_prompt or num_tokens < self.num_prompt
        return rest if whole else max(rest, self.num_prompt)

    def longest(self, pool_tokens: int) -> int:
        fits = self.num_prompt <= pool_tokens
        return pool_tokens + self.lost(self.num_prompt) if fits else pool_tokens


def retention(
    wanted: LongContext, *, num_prompt: int, page_tokens: int, model_window: int
) -> Retention:
    """`model_window`: the widest that layers of the model have themselves, 0 for none. No less
    stays, for such layers know by its place in the pages what their window has left behind."""

    def pages(num_tokens: int) -> int:
        return -(-num_tokens // page_tokens) * page_tokens

    match wanted.mode:
        case "full":
            return Everything()
        case "window":
            window = pages(max(wanted.window, model_window, 1))
            stride = max(window // _STRIDES_A_WINDOW // page_tokens, 1) * page_tokens
            return SinksAndWindow(sinks=pages(wanted.sinks), window=window, stride=stride)
        case "drop":
            least = wanted.sinks + OBSERVED_TOKENS
            keep = pages(max(wanted.keep, model_window, least))
            if num_prompt <= keep:
                return Everything()
            return Selection(num_prompt=num_prompt, keep=keep, sinks=wanted.sinks)
