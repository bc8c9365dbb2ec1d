"""One choice of one request on its way through the engine."""

import random
from collections import Counter
from functools import cached_property

from engine.grammars.matcher import Matcher
from engine.kv.pagehash import PageChain
from engine.kv.purges import Tags
from engine.kv.retention import Everything, Retention
from engine.process.protocol import TokenChoice
from engine.sampling import Sampling
from engine.text.answer import Answer

_EVERYTHING = Everything()


class Sequence:
    """Mutable: the scheduler moves it, the engine appends to it.

    `num_computed` of its tokens have keys and values in pages; the others still have to be
    computed. A sequence that generates has exactly one of these: its newest token.
    """

    def __init__(
        self,
        *,
        sequence_id: int,
        request_id: int,
        index: int,
        prompt_ids: list[int],
        max_new_tokens: int,
        sampling: Sampling,
        answer: Answer,
        chain: PageChain,
        tags: Tags = frozenset(),
        num_pinned: int = 0,
        leader: "Sequence | None" = None,
        matcher: Matcher | None = None,
        retention: Retention = _EVERYTHING,
    ) -> None:
        self.sequence_id = sequence_id
        """Rises with arrival; owns the pages."""
        self.request_id = request_id
        self.index = index
        self.token_ids = list(prompt_ids)
        self.num_prompt = len(prompt_ids)
        self.counts: Counter[int] = Counter()
        """Of the answer's tokens."""
        self.num_computed = 0
        self.num_lost = 0
        """Of the computed tokens, those whose keys and values are gone from its pages."""
        self.retention = retention
        """What stays of them."""
        self.max_new_tokens = max_new_tokens
        self.sampling = sampling
        self.answer = answer
        self.matcher = matcher
        """What its grammar allows next; None where any text will do."""
        self.leader = leader
        """The first choice of its request, whose pages of the prompt it shares; None for that."""
        self.chain = chain
        """Names its full pages in the prefix cache."""
        self.tags = tags
        """What its pages depend on; None: on what is not known."""
        self.publishes = True
        """Its pages may be found by others. Once False it stays so."""
        self.num_pinned = num_pinned
        """So many tokens of its beginning stay in the prefix cache."""
        self.num_filled = 0
        """Pages that are known to be full."""
        self.num_filed = 0
        """Pages that the prefix cache has seen."""
        self.slots: tuple[int, ...] = ()
        """Where its pages are swapped to, in token order."""
        self.cached_tokens: int | None = None
        """Found in the prefix cache when it was admitted first."""
        self.held_logprobs: list[TokenChoice] = []
        """Of tokens whose text is not out yet."""
        # The state stays with the sequence: a batch's other members, or a preemption, do not
        # move it. Not for secrets, hence no system generator.
        seed = None if sampling.seed is None else f"{sampling.seed}/{index}"
        self.random = random.Random(seed)  # noqa: S311  # sampling, no secret

    @cached_property
    def prompt_set(self) -> frozenset[int]:
        """The different tokens of its prompt."""
        return frozenset(self.token_ids[: self.num_prompt])

    @property
    def num_remaining(self) -> int:
        """Tokens to compute before the next one can be sampled."""
        return len(self.token_ids) - self.num_computed

    @property
    def num_kv(self) -> int:
        """Tokens whose keys and values its pages hold, one after the other."""
        return self.num_computed - self.num_lost

    def append(self, token_id: int) -> None:
        """A token of the answer."""
        self.token_ids.append(token_id)
        self.counts[token_id] += 1

    @property
    def num_output(self) -> int:
        return len(self.token_ids) - self.num_prompt
