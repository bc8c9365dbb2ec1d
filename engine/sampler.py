"""Next tokens from logits."""

import logging
import math
from collections.abc import Sequence as Many
from typing import cast

import msgspec
import numpy as np
import torch

from engine.grammars.matcher import Matcher
from engine.process.protocol import TokenChoice, TokenLogprob
from engine.sampling import Sampling
from engine.sequence import Sequence
from engine.text.tokenizer import Tokenizer

_GREEDY_BELOW = 1e-5
_FEW = 4096
"""So many allowed tokens are drawn from by themselves, more as part of the whole vocabulary."""

log = logging.getLogger("engine.sampler")


class Pick(msgspec.Struct, frozen=True, kw_only=True):
    """A sampled token; `choice` where log-probabilities were asked for."""

    token_id: int
    choice: TokenChoice | None


class Sampler:
    """Each row is decided by its own sequence: parameters, past tokens, random state."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, sequences: Many[Sequence]) -> list[Pick | None]:
        """`logits` float32 [len(sequences), vocab_size or more], left as they are. Draws a number
        from the random state of each sequence that is not greedy, and another one where a grammar
        does not allow what that gave. Log-probabilities are the model's own, whatever penalties,
        bias and grammar made of them. None: no token can be drawn for that sequence; it is logged
        why, and the others are not concerned."""
        # Some models have more rows than tokens, up to a round number.
        logits = logits[:, : self._tokenizer.vocab_size]
        greedy = _likeliest(logits)
        if not all(_is_bare(sequence) for sequence in sequences):
            logits = logits.cpu()  # many small steps, each of which a GPU would be asked for
        rows = zip(logits, sequences, greedy, strict=True)
        return [self._pick(row, sequence, likeliest) for row, sequence, likeliest in rows]

    def _pick(self, row: torch.Tensor, sequence: Sequence, likeliest: int) -> Pick | None:
        try:
            plain = _is_likeliest(sequence)
            token_id = likeliest if plain else self._drawn(row, sequence)
            return Pick(token_id=token_id, choice=self._choice(row, token_id, sequence))
        except Exception:  # one request must not end those of everybody else
            log.exception("no token for request %d", sequence.request_id)
            return None

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
        if sequence.matcher is not None:
            return _drawn_of_allowed(row, sequence, sequence.matcher)
        if sampling.ignore_eos or sequence.num_output < sampling.min_tokens:
            ends = torch.tensor(sorted(self._tokenizer.end_ids), dtype=torch.int64)
            row = row.index_fill(0, ends, -math.inf)
        return _draw(row, sequence)

    def _logprob(self, token_id: int, logprob: float) -> TokenLogprob:
        text = self._tokenizer.bytes_of(token_id) or self._tokenizer.name(token_id).encode()
        return TokenLogprob(token=text, logprob=logprob)


def _likeliest(logits: torch.Tensor) -> list[int]:
    """Of each row; of equals the first. On a CPU numpy's search is ten times as fast as torch's."""
    if logits.device.type == "cpu":
        return cast("list[int]", logits.numpy().argmax(axis=1).tolist())
    return logits.argmax(dim=-1).tolist()


def _drawn_of_allowed(row: torch.Tensor, sequence: Sequence, matcher: Matcher) -> int:
    """As if all that is not allowed had no probability. To ask about one token costs a hundredth
    of a list of all, and a token that is drawn from everything is mostly allowed; where it is not,
    it is drawn again, from the list: the distribution is the same (rejection sampling, von Neumann,
    1951). Not so where the likeliest are singled out before: they are to be of the allowed ones."""
    if not _is_truncated(sequence.sampling):
        token_id = _draw(row, sequence)
        if matcher.allows(token_id):
            return token_id
    allowed = matcher.allowed()
    if np.count_nonzero(allowed) > _FEW:
        return _draw(row.where(torch.from_numpy(allowed), -math.inf), sequence)
    token_ids = torch.from_numpy(np.flatnonzero(allowed))
    return int(token_ids[_draw(row[token_ids], sequence)])


def _is_likeliest(sequence: Sequence) -> bool:
    return sequence.matcher is None and _is_plain(sequence.sampling)


def _is_bare(sequence: Sequence) -> bool:
    """Nothing is asked of its logits but the likeliest token."""
    return _is_likeliest(sequence) and sequence.sampling.top_logprobs is None


def _is_greedy(sampling: Sampling) -> bool:
    return sampling.temperature < _GREEDY_BELOW


def _is_truncated(sampling: Sampling) -> bool:
    """Unlikely tokens have no chance."""
    shortens = sampling.top_k or sampling.top_p < 1 or sampling.min_p
    return bool(shortens) and not _is_greedy(sampling)


def _is_plain(sampling: Sampling) -> bool:
    """The likeliest token of the bare logits is the answer."""
    return (
        _is_greedy(sampling)
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
        seen = torch.tensor(sorted(sequence.prompt_set.union(sequence.counts)))
        values, penalty = row[seen], sampling.repetition_penalty
        row[seen] = torch.where(values > 0, values / penalty, values * penalty)
    if sequence.num_output and (sampling.frequency_penalty or sampling.presence_penalty):
        penalties = sampling.frequency_penalty * torch.tensor(list(sequence.counts.values()))
        row[list(sequence.counts)] -= sampling.presence_penalty + penalties
    for token_id, bias in sampling.logit_bias.items():
        row[token_id] += bias
    return row


def _draw(row: torch.Tensor, sequence: Sequence) -> int:
    sampling = sequence.sampling
    if _is_greedy(sampling):
        return _likeliest(row[None])[0]
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
        token_ids = _likeliest_first(probabilities, sampling)
        probabilities = probabilities[token_ids]
        total = probabilities.sum() if sampling.top_k else 1.0
        before = probabilities.cumsum(dim=-1) - probabilities
        num_inside = max(1, int((before < sampling.top_p * total).sum()))
        probabilities, token_ids = probabilities[:num_inside], token_ids[:num_inside]
    if sampling.min_p:
        least = sampling.min_p * probabilities.max()
        probabilities = torch.where(probabilities >= least, probabilities, 0.0)
    return _Kept(probabilities=probabilities, token_ids=token_ids)


def _likeliest_first(probabilities: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Ids of tokens, descending: top-k of them, or enough for top-p. Tokens below an even share of
    what top-p leaves out are, all together, less than that: they need not be sorted."""
    values = probabilities.numpy()
    most, least = len(values), (1 - sampling.top_p) / len(values)
    if sampling.top_k:
        most = min(sampling.top_k, most)
        least = np.partition(values, -most)[-most]
    token_ids = np.flatnonzero(values >= least)
    descending = values[token_ids].argsort()[::-1][:most]
    return torch.from_numpy(token_ids[descending])
