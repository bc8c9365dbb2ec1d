"""How the next token is chosen, as the request says it. Names and defaults are OpenAI's; `top_k`,
`min_p` and `repetition_penalty` are named as vLLM's users know them."""

import msgspec


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Validated by whoever builds it; the ranges stand beside the fields."""

    max_tokens: int | None = None
    """None: as many as the context leaves."""
    temperature: float = 1.0
    """>= 0; 0 takes the likeliest token."""
    top_p: float = 1.0
    """(0, 1]"""
    top_k: int = 0
    """0 is off."""
    min_p: float = 0.0
    """[0, 1]: least probability as a share of the likeliest token's."""
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    """> 0; also counts the prompt's tokens."""
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these; none is empty."""
    min_tokens: int = 0
    """No end token before so many; without effect where a grammar says when it ends."""
    ignore_eos: bool = False
    """No end token at all: only `max_tokens`, a stop string or a grammar ends the answer."""
    top_logprobs: int | None = None
    """None: no log-probabilities; else how many alternatives beside the chosen token."""
