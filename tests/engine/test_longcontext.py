"""Windows and dropped tokens in a whole engine, against transformers with the same kept by hand."""

import math
from typing import Any

import pytest
import torch
from enginekit import GREEDY, Kit, Tiny, drain
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from engine.engine import Engine
from engine.errors import RequestRefused
from engine.longcontext import LongContext
from engine.process.protocol import Delta
from engine.sampling import Sampling

PAGE = 16
WINDOW = LongContext(mode="window", sinks=4, window=48)
SINKS, SEEN, STRIDE = 16, 48, 16  # as whole pages of it
END = 258
"""The last of the vocabulary, which `ignore_eos` forbids."""
DROP = LongContext(mode="drop", sinks=4, keep=64)
LOGPROBS = Sampling(temperature=0.0, top_logprobs=0, ignore_eos=True, max_tokens=24)


def _prompt(num_tokens: int, *, seed: int = 3) -> list[int]:
    return torch.randint(
        33, 127, (num_tokens,), generator=torch.Generator().manual_seed(seed)
    ).tolist()


@pytest.fixture(scope="module")
def theirs(tiny_files: Tiny) -> Any:
    config = LlamaConfig(
        vocab_size=259, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5,
        rope_theta=10000.0, tie_word_embeddings=True, max_position_embeddings=512,
        pad_token_id=0, bos_token_id=257, eos_token_id=258, attn_implementation="eager",
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    embedding = tiny_files.state["model.embed_tokens.weight"]
    model.load_state_dict(tiny_files.state | {"lm_head.weight": embedding})
    return model


def _engine(tiny: Kit, **kept: Any) -> Engine:
    return tiny.engine(**({"page_tokens": PAGE} | kept))


def _logprobs(
    engine: Engine, prompt: list[int], long_context: LongContext | None
) -> list[tuple[bytes, float]]:
    """Tokens with their log-probabilities."""
    engine.add(1, prompt, sampling=LOGPROBS, long_context=long_context)
    chosen = []
    while engine.busy:
        for event in engine.step():
            if isinstance(event, Delta):
                chosen += [(one.chosen.token, one.chosen.logprob) for one in event.logprobs]
        engine.pages.check_integrity()
    return chosen


def _assert_same(ours: list[tuple[bytes, float]], logits: torch.Tensor, ids: list[int]) -> None:
    """`logits` [num_tokens, vocab] predicted `ids`."""
    expected = logits.log_softmax(dim=-1)
    assert len(ours) == len(ids) > 10
    for (_, logprob), row, token_id in zip(ours, expected, ids, strict=True):
        assert abs(logprob - float(row[token_id])) < 1e-4
        assert int(row[:END].argmax()) == token_id


def _ids(tiny: Kit, chosen: list[tuple[bytes, float]]) -> list[int]:
    names = {tiny.tokenizer.bytes_of(i) or tiny.tokenizer.name(i).encode(): i for i in range(259)}
    return [names[token] for token, _ in chosen]


def test_a_window_gives_what_transformers_gives_with_the_same_mask(tiny: Kit, theirs: Any) -> None:
    prompt = _prompt(150)
    ours = _logprobs(_engine(tiny), prompt, WINDOW)
    ids = [*prompt, *_ids(tiny, ours)]
    mask = torch.full((1, 1, len(ids), len(ids)), -math.inf)
    for query in range(len(ids)):
        lost = max(0, query - SINKS - SEEN) // STRIDE * STRIDE
        mask[..., query, : min(SINKS, query + 1)] = 0
        mask[..., query, min(SINKS + lost, query) : query + 1] = 0
    with torch.inference_mode():
        logits = theirs(torch.tensor([ids]), attention_mask=mask).logits[0]
        full = theirs(torch.tensor([ids])).logits[0]
    _assert_same(ours, logits[len(prompt) - 1 : -1], ids[len(prompt) :])
    assert (full - logits)[-1].abs().max() > 0.01, "the window changes something here"


def test_dropping_gives_what_transformers_gives_with_the_same_keys(tiny: Kit, theirs: Any) -> None:
    prompt = _prompt(150)
    ours = _logprobs(_engine(tiny), prompt, DROP)
    ids = _ids(tiny, ours)
    with torch.inference_mode():
        read = theirs(torch.tensor([prompt]), use_cache=True, output_attentions=True)
        cache = DynamicCache()
        for layer, attentions in enumerate(read.attentions):
            weights = attentions[0, :, -32:].sum(dim=1).view(2, 2, -1).sum(dim=1)
            pooled = torch.nn.functional.max_pool1d(weights, 7, stride=1, padding=3)
            pooled[:, :4] = pooled[:, -32:] = math.inf
            kept = pooled.topk(64, dim=1).indices.sort(dim=1).values
            at = kept[None, :, :, None].expand(1, 2, 64, 16)
            stored = read.past_key_values.layers[layer]
            cache.update(stored.keys.gather(2, at), stored.values.gather(2, at), layer)
        rows = [read.logits[0, -1]]
        for position, token_id in enumerate(ids[:-1], start=len(prompt)):
            step = theirs(
                torch.tensor([[token_id]]), cache=cache,
                position_ids=torch.tensor([[position]]),
                cache_position=torch.tensor([cache.get_seq_length()]),
            )  # fmt: skip
            rows.append(step.logits[0, -1])
    _assert_same(ours, torch.stack(rows), ids)


@pytest.mark.parametrize("mode", [WINDOW, DROP])
@pytest.mark.parametrize("kv_dtype", ["fp32", "int8", "int8-hq"])
def test_an_answer_does_not_depend_on_chunks_or_company(
    tiny: Kit, mode: LongContext, kv_dtype: str
) -> None:
    prompt = _prompt(130)
    alone = _logprobs(_engine(tiny, kv_dtype=kv_dtype, step_tokens=512), prompt, mode)
    engine = _engine(tiny, kv_dtype=kv_dtype, step_tokens=16)
    for other in range(2, 5):
        engine.add(other, _prompt(20 * other, seed=other), sampling=GREEDY)
    assert [one for one, _ in _logprobs(engine, prompt, mode)] == [one for one, _ in alone]


def test_a_mode_that_gives_nothing_up_changes_nothing(tiny: Kit) -> None:
    prompt = _prompt(60)
    whole = _logprobs(_engine(tiny), prompt, None)
    for mode in (LongContext(mode="window", window=400), LongContext(mode="drop", keep=64)):
        assert _logprobs(_engine(tiny), prompt, mode) == whole


def test_a_window_goes_on_to_the_models_last_position_in_a_few_pages(tiny: Kit) -> None:
    engine = _engine(tiny, num_pages=6)
    held: list[int] = []
    asked = Sampling(temperature=0.0, ignore_eos=True)
    engine.add(1, _prompt(200), sampling=asked, long_context=WINDOW)
    answers = drain(engine, each_step=lambda: held.append(6 - engine.pages.num_free))
    assert answers[1, 0].num_tokens == 512 - 200
    assert max(held) == (SINKS + SEEN + STRIDE) // PAGE == 5
    with pytest.raises(RequestRefused, match="96 tokens"):
        engine.add(2, _prompt(200), sampling=asked)


def test_dropped_tokens_give_their_pages_back(tiny: Kit) -> None:
    engine = _engine(tiny)
    engine.add(1, _prompt(200), sampling=GREEDY, long_context=DROP)
    held: list[int] = []
    drain(engine, each_step=lambda: held.append(64 - engine.pages.num_free))
    assert max(held) == 13
    assert held[-2] <= 64 // PAGE + 2


@pytest.mark.parametrize(("mode", "num_prompt"), [(WINDOW, 40), (WINDOW, 100), (DROP, 100)])
@pytest.mark.parametrize("kv_swap_bytes", [0, 2**22])
def test_a_preempted_sequence_ends_with_the_same_tokens(
    tiny: Kit, mode: LongContext, num_prompt: int, kv_swap_bytes: int
) -> None:
    prompts = [_prompt(num_prompt, seed=seed) for seed in range(3)]
    asked = Sampling(temperature=0.0, max_tokens=60, ignore_eos=True)

    def texts(num_pages: int) -> tuple[list[str], int]:
        engine = _engine(tiny, num_pages=num_pages, kv_swap_bytes=kv_swap_bytes)
        engine.add(9, _prompt(30, seed=9), sampling=asked)  # grows, and stays: it came first
        for at, prompt in enumerate(prompts):
            engine.add(at, prompt, sampling=asked, long_context=mode)
        answers = drain(engine)
        return [answers[key].text for key in sorted(answers)], engine.occupancy().preemptions

    wide, none = texts(64)
    tight, some = texts(10)
    assert (none, wide) == (0, tight)
    assert some > 0


def test_their_pages_are_neither_found_nor_taken_from_others(tiny: Kit) -> None:
    engine = _engine(tiny)
    prompt = _prompt(150)
    for mode in (WINDOW, DROP):
        _logprobs(engine, prompt, mode)
        assert engine.occupancy().cached_pages == 0
    _logprobs(engine, prompt, None)
    published = engine.occupancy().cached_pages
    assert published == 10
    before = engine.occupancy().cached_tokens
    for mode in (WINDOW, DROP):
        _logprobs(engine, prompt, mode)
    assert engine.occupancy().cached_tokens == before


def test_each_choice_of_a_request_keeps_its_own(tiny: Kit) -> None:
    engine = _engine(tiny)
    for mode in (WINDOW, DROP):
        engine.add(1, _prompt(150), sampling=GREEDY, num_choices=2, long_context=mode)
        answers = drain(engine)
        assert answers[1, 0].text == answers[1, 1].text


def test_an_engine_whose_requests_do_not_say_does_as_its_config_says(tiny: Kit) -> None:
    prompt = _prompt(150)
    said = _logprobs(_engine(tiny), prompt, WINDOW)
    assert _logprobs(_engine(tiny, long_context=WINDOW), prompt, None) == said
    assert _engine(tiny, long_context=WINDOW, num_pages=6).max_context == 512
    assert _engine(tiny, num_pages=6).max_context == 96
