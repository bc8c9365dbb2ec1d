"""Next tokens from logits."""

import math
from collections import Counter
from collections.abc import Sequence as Many

import msgspec
import torch

from engine.process.protocol import TokenChoice, TokenLogprob
from engine.sampling import Sampling
from engine.sequence import Sequence
from engine.text.tokenizer import Tokenizer

_GREEDY_BELOW = 1e-5
_FEW = 4096
"""So many allowed tokens are drawn from by themselves, more as part of the whole vocabulary."""
_LIKELIEST = 1024
"""Top-p looks at so many tokens before it sorts the whole vocabulary: it rarely has to."""


class Pick(msgspec.Struct, frozen=True, kw_only=True):
    """A sampled token; `choice` where log-probabilities were asked for."""

    token_id: int
    choice: TokenChoice | None


class Sampler:
    """Each row is decided by its own sequence: parameters, past tokens, random state."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, sequences: Many[Sequence]) -> list[Pick]:
        """`logits` float32 [len(sequences), vocab_size or more], left as they are. Draws one number
        from the random state of each sequence that is not greedy. Log-probabilities are the
        model's own, whatever penalties, bias and grammar made of them."""
        # Some models have more rows than tokens, up to a round number.
        logits = logits[:, : self._tokenizer.vocab_size]
        greedy = logits.argmax(dim=-1).tolist()
        picks = []
        if not all(_is_bare(sequence) for sequence in sequences):
            logits = logits.cpu()  # many small steps, each of which a GPU would be asked for
        for row, sequence, likeliest in zip(logits, sequences, greedy, strict=True):
            plain = _is_likeliest(sequence)
            token_id = likeliest if plain else self._drawn(row, sequence)
            picks.append(Pick(token_id=token_id, choice=self._choice(row, token_id, sequence)))
        return picks

    def _choice(self, row: torch.Tensor, token_id: int, sequence: Sequence) -> TokenChoice | None:
        if sequence.sampling.top_logprobs is None:
            return None
        logprobs = row.log_softmax(dim=-1)
        top = logprobs.topk(sequence.sampling.top_logprobs)
        return TokenChoice(
            chosen=self._logprob(token_id, float(logprobs[token_id])),
            top=tuple(map(self._logprob, top.indices.tolist(), top.values.tolist())),
        )

    def _drawn(self, row: torch.Tensor, sequence: Sequence) -> int:
        """A token of the logits with penalties and bias, of those that the grammar allows."""
        row = _penalised(row, sequence)
        sampling = sequence.sampling
        if sequence.matcher is None:
            if sampling.ignore_eos or sequence.num_output < sampling.min_tokens:
                ends = torch.tensor(sorted(self._tokenizer.end_ids))
                row = row.index_fill(0, ends, -math.inf)
            return _draw(row, sequence)
        allowed = torch.from_numpy(sequence.matcher.allowed())
        if int(allowed.sum()) > _FEW:
            return _draw(row.where(allowed, -math.inf), sequence)
        token_ids = allowed.nonzero()[:, 0]
        return int(token_ids[_draw(row[token_ids], sequence)])

    def _logprob(self, token_id: int, logprob: float) -> TokenLogprob:
        text = self._tokenizer.bytes_of(token_id) or self._tokenizer.name(token_id).encode()
        return TokenLogprob(token=text, logprob=logprob)


def _is_likeliest(sequence: Sequence) -> bool:
    return sequence.matcher is None and _is_plain(sequence.sampling)


def _is_bare(sequence: Sequence) -> bool:
    """Nothing is asked of its logits but the likeliest token."""
    return _is_likeliest(sequence) and sequence.sampling.top_logprobs is None


def _is_plain(sampling: Sampling) -> bool:
    """The likeliest token of the bare logits is the answer."""
    return (
        sampling.temperature < _GREEDY_BELOW
        and _is_unpenalised(sampling)
        and not (sampling.min_tokens or sampling.ignore_eos)
    )


def _is_unpenalised(sampling: Sampling) -> bool:
    return (
        not sampling.logit_bias
        and sampling.frequency_penalty == sampling.presence_penalty == 0
        and sampling.repetition_penalty == 1
    )


def _penalised(row: torch.Tensor, sequence: Sequence) -> torch.Tensor:
    """With penalties and bias, new where there are any. Frequency and presence count the answer's
    tokens, as OpenAI's reference says; repetition (Keskar et al., CTRL, 2019) the prompt's as
    well."""
    sampling = sequence.sampling
    if _is_unpenalised(sampling):
        return row
    row = row.clone()
    if sampling.repetition_penalty != 1:
        seen = torch.tensor(sorted(set(sequence.token_ids)))
        values, penalty = row[seen], sampling.repetition_penalty
        row[seen] = torch.where(values > 0, values / penalty, values * penalty)
    if sequence.num_output and (sampling.frequency_penalty or sampling.presence_penalty):
        counts = Counter(sequence.output_ids)
        penalties = sampling.frequency_penalty * torch.tensor(list(counts.values()))
        row[list(counts)] -= sampling.presence_penalty + penalties
    for token_id, bias in sampling.logit_bias.items():
        row[token_id] += bias
    return row


def _draw(row: torch.Tensor, sequence: Sequence) -> int:
    sampling = sequence.sampling
    if sampling.temperature < _GREEDY_BELOW:
        return int(row.argmax())
    kept = _kept((row / sampling.temperature).softmax(dim=-1), sampling)
    # Inverse of the distribution function: one number a token, whatever the vocabulary's size.
    cumulative = kept.probabilities.double().cumsum(dim=-1)
    point = sequence.random.random() * float(cumulative[-1])
    place = int(torch.searchsorted(cumulative, point, right=True))
    place = min(place, len(cumulative) - 1)
    return place if kept.token_ids is None else int(kept.token_ids[place])


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities, not summing to 1; `token_ids` None: all tokens in order."""

    probabilities: torch.Tensor
    token_ids: torch.Tensor | None


def _kept(probabilities: torch.Tensor, sampling: Sampling) -> _Kept:
    """Top-k, then top-p (Holtzman et al., 2020) of what is left, then min-p (Nguyen et al.,
    2024)."""
    token_ids = None
    if sampling.top_k or sampling.top_p < 1:
        probabilities, token_ids = _sorted(probabilities, sampling)
        total = probabilities.sum() if sampling.top_k else 1.0
        before = probabilities.cumsum(dim=-1) - probabilities
        inside = before < sampling.top_p * total
        inside[0] = True
        probabilities, token_ids = probabilities[inside], token_ids[inside]
    least = sampling.min_p * probabilities.max()
    probabilities = torch.where(probabilities >= least, probabilities, 0.0)
    return _Kept(probabilities=probabilities, token_ids=token_ids)


def _sorted(probabilities: torch.Tensor, sampling: Sampling) -> torch.return_types.topk:
    """The likeliest tokens, descending: top-k of them, or enough for top-p."""
    vocab_size = len(probabilities)
    if sampling.top_k:
        return probabilities.topk(min(sampling.top_k, vocab_size))
    likeliest = probabilities.topk(min(_LIKELIEST, vocab_size))
    if likeliest.values.sum() >= sampling.top_p:
        return likeliest
    return probabilities.topk(vocab_size)
