import math
from collections import Counter

import numpy as np
import pytest
import torch
from enginekit import Kit

from engine.grammars.matcher import Matcher
from engine.kv.pagehash import PageChain
from engine.sampler import Sampler
from engine.sampling import Sampling
from engine.sequence import Sequence
from engine.text.answer import Answer


@pytest.fixture
def sampler(tiny: Kit) -> Sampler:
    return Sampler(tiny.tokenizer)


class Only(Matcher):
    """Allows some letters, anywhere."""

    def __init__(self, letters: str) -> None:
        self._letters = set(map(_id, letters))

    def allows(self, token_id: int) -> bool:
        return token_id in self._letters

    def allowed(self) -> np.ndarray:
        return np.array([self.allows(token_id) for token_id in range(259)])


def _sequence(
    tiny: Kit, sampling: Sampling, *, prompt: list[int] | None = None, index: int = 0,
    matcher: Matcher | None = None,
) -> Sequence:  # fmt: skip
    return Sequence(
        sequence_id=0, request_id=0, index=index, prompt_ids=prompt or [0], max_new_tokens=9,
        sampling=sampling, answer=Answer(tiny.tokenizer, ()), chain=PageChain(b"", page_tokens=32),
        matcher=matcher,
    )  # fmt: skip


def _logits(**probabilities: float) -> torch.Tensor:
    """A row of 259 with the given probabilities of single letters, the rest impossible."""
    row = torch.full((259,), -math.inf)
    for letter, probability in probabilities.items():
        row[_id(letter)] = math.log(probability)
    return row


def _id(letter: str) -> int:
    return ord(letter)  # the tiny vocabulary begins with the bytes


def _drawn(sampler: Sampler, row: torch.Tensor, sequence: Sequence, times: int = 400) -> Counter:
    return Counter(chr(sampler.sample(row[None], [sequence])[0].token_id) for _ in range(times))


def test_temperature_zero_takes_the_likeliest(tiny: Kit, sampler: Sampler) -> None:
    row = _logits(a=0.4, b=0.6)
    assert set(_drawn(sampler, row, _sequence(tiny, Sampling(temperature=0)))) == {"b"}


def test_draws_follow_the_probabilities(tiny: Kit, sampler: Sampler) -> None:
    drawn = _drawn(sampler, _logits(a=0.7, b=0.3), _sequence(tiny, Sampling(seed=1)), 2000)
    assert set(drawn) == {"a", "b"}
    assert abs(drawn["a"] / 2000 - 0.7) < 0.05


def test_temperature_flattens_or_sharpens(tiny: Kit, sampler: Sampler) -> None:
    row = _logits(a=0.8, b=0.2)
    cold = _drawn(sampler, row, _sequence(tiny, Sampling(seed=1, temperature=0.25)))
    hot = _drawn(sampler, row, _sequence(tiny, Sampling(seed=1, temperature=2.0)))
    assert cold["b"] / 400 < 0.03
    assert abs(hot["b"] / 400 - 1 / 3) < 0.08


@pytest.mark.parametrize(
    ("sampling", "possible"),
    [
        (Sampling(seed=3, top_k=2), "ab"),
        (Sampling(seed=3, top_p=0.5), "a"),
        (Sampling(seed=3, top_p=0.75), "ab"),
        (Sampling(seed=3, top_p=0.01), "a"),
        (Sampling(seed=3, min_p=0.4), "ab"),
        (Sampling(seed=3, top_k=3, top_p=0.8), "ab"),  # of what top-k leaves: 0.5 of 0.9
        (Sampling(seed=3), "abcd"),
    ],
)
def test_unlikely_tokens_are_cut_off(
    tiny: Kit, sampler: Sampler, sampling: Sampling, possible: str
) -> None:
    row = _logits(a=0.5, b=0.25, c=0.15, d=0.1)
    assert set(_drawn(sampler, row, _sequence(tiny, sampling))) == set(possible)


def test_top_p_over_a_flat_vocabulary_keeps_its_share(tiny: Kit) -> None:
    """Wider than the shortcut's prefix: the whole vocabulary has to be sorted."""
    from engine.sampler import _kept

    flat = torch.full((5000,), 1 / 5000)
    kept = _kept(flat, Sampling(top_p=0.9)).probabilities
    assert abs(len(kept) - 4500) <= 1


def test_the_same_seed_gives_the_same_tokens_whoever_is_beside(tiny: Kit, sampler: Sampler) -> None:
    rows = torch.randn(12, 259)
    alone = _sequence(tiny, Sampling(seed=9))
    picked = [sampler.sample(row[None], [alone])[0].token_id for row in rows]
    beside, other = _sequence(tiny, Sampling(seed=9)), _sequence(tiny, Sampling())
    with_others = []
    for row in rows:
        both = torch.stack((torch.randn(259), row))
        with_others.append(sampler.sample(both, [other, beside])[1].token_id)
    assert picked == with_others


def test_choices_of_one_seed_differ(tiny: Kit, sampler: Sampler) -> None:
    rows = torch.zeros(20, 259)
    texts = {
        tuple(sampler.sample(row[None], [sequence])[0].token_id for row in rows)
        for sequence in (_sequence(tiny, Sampling(seed=9), index=i) for i in range(3))
    }
    assert len(texts) == 3


def test_logit_bias_forbids_and_forces(tiny: Kit, sampler: Sampler) -> None:
    row = _logits(a=0.6, b=0.3, c=0.1)
    forbid = Sampling(temperature=0, logit_bias={_id("a"): -100})
    force = Sampling(temperature=0, logit_bias={_id("c"): 100})
    assert set(_drawn(sampler, row, _sequence(tiny, forbid), 1)) == {"b"}
    assert set(_drawn(sampler, row, _sequence(tiny, force), 1)) == {"c"}


def test_penalties_count_the_answer_and_repetition_the_prompt_too(
    tiny: Kit, sampler: Sampler
) -> None:
    row = torch.full((259,), -50.0)
    row[_id("a")], row[_id("b")] = 2.0, 1.5

    def picked(**penalty: float) -> str:
        sequence = _sequence(tiny, Sampling(temperature=0, **penalty), prompt=[_id("a")])
        sequence.append(_id("b"))
        sequence.append(_id("b"))
        return chr(sampler.sample(row[None], [sequence])[0].token_id)

    assert picked(presence_penalty=2.0) == "a", "the prompt's a is not counted"
    assert picked(repetition_penalty=1.5) == "a"
    row[_id("b")] = 2.5
    assert picked() == "b"
    assert picked(presence_penalty=0.6) == "a"
    assert picked(frequency_penalty=0.2) == "b"
    assert picked(frequency_penalty=0.3) == "a", "counted twice"


def test_log_probabilities_are_those_of_the_bare_logits(tiny: Kit, sampler: Sampler) -> None:
    row = _logits(a=0.5, b=0.3, c=0.2)
    sampling = Sampling(temperature=0, top_logprobs=2, logit_bias={_id("c"): 100})
    choice = sampler.sample(row[None], [_sequence(tiny, sampling)])[0].choice
    assert choice is not None
    assert choice.chosen.token == b"c"
    assert math.isclose(choice.chosen.logprob, math.log(0.2), rel_tol=1e-4)
    assert [top.token for top in choice.top] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("sampling", "a_share"),
    [
        (Sampling(seed=1), 0.6),  # 0.3 / (0.3 + 0.2)
        (Sampling(seed=1, top_p=0.55), 1.0),  # a alone is more than that of what is allowed
        (Sampling(seed=1, top_k=2), 0.6),
        (Sampling(temperature=0), 1.0),
    ],
    ids=["all", "top_p", "top_k", "greedy"],
)
def test_a_grammar_shares_out_among_its_tokens_what_others_would_have_had(
    tiny: Kit, sampler: Sampler, sampling: Sampling, a_share: float
) -> None:
    row = _logits(a=0.3, b=0.2, x=0.4, y=0.1)
    drawn = _drawn(sampler, row, _sequence(tiny, sampling, matcher=Only("ab")), 2000)
    assert set(drawn) <= {"a", "b"}
    assert abs(drawn["a"] / 2000 - a_share) < 0.05


def test_rows_beyond_the_vocabulary_are_never_drawn(tiny: Kit, sampler: Sampler) -> None:
    """Some models have more rows than tokens, up to a round number."""
    padded = torch.cat((_logits(a=1.0), torch.full((61,), 100.0)))
    for sampling in (Sampling(temperature=0), Sampling(seed=1), Sampling(seed=1, top_k=3)):
        assert set(_drawn(sampler, padded, _sequence(tiny, sampling), 5)) == {"a"}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_end_token_waits_for_the_least_length(
    tiny: Kit, sampler: Sampler, temperature: float
) -> None:
    row = _logits(a=0.001)
    row[258] = 0.0
    for sampling, output, end in (
        (Sampling(temperature=temperature, seed=1, min_tokens=2), 1, False),
        (Sampling(temperature=temperature, seed=1, min_tokens=2), 2, True),
        (Sampling(temperature=temperature, seed=1, ignore_eos=True), 9, False),
    ):
        sequence = _sequence(tiny, sampling)
        for _ in range(output):
            sequence.append(_id("a"))
        assert (sampler.sample(row[None], [sequence])[0].token_id == 258) is end
