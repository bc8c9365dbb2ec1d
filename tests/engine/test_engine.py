"""The engine's promises on a tiny model, and the first of them on the real one."""

import random

import msgspec
import pytest
import torch
from enginekit import GREEDY, Kit, answer, drain

from engine.engine import Engine
from engine.errors import RequestRefused
from engine.sampling import Sampling
from engine.text.tokenizer import Tokenizer

# The tiny model never ends by itself within these.
NO_END = {256: -100.0, 258: -100.0}


def _greedy(max_tokens: int) -> Sampling:
    return Sampling(temperature=0, max_tokens=max_tokens, logit_bias=NO_END)


def _prompts(count: int, seed: int = 0) -> list[list[int]]:
    # Not cryptography: any fixed prompts do.
    source = random.Random(seed)
    return [[source.randrange(256) for _ in range(source.randrange(1, 90))] for _ in range(count)]


@pytest.mark.parametrize("kv_dtype", ["fp32", "bf16", "int8"])
def test_a_sequence_answers_the_same_alone_and_in_company(tiny: Kit, kv_dtype: str) -> None:
    prompts = _prompts(10)
    alone = [answer(tiny.engine(kv_dtype=kv_dtype), ids, _greedy(24)).text for ids in prompts]
    engine = tiny.engine(kv_dtype=kv_dtype, step_tokens=48)
    for number, ids in enumerate(prompts):
        engine.add(number, ids, sampling=_greedy(24))
    together = drain(engine)
    assert [together[number, 0].text for number in range(10)] == alone
    generated = sum(answered.num_tokens for answered in together.values())
    assert engine.occupancy().generated_tokens == generated > 0


@pytest.mark.parametrize("kv_dtype", ["fp32", "int8"])
def test_a_preempted_sequence_goes_on_with_the_same_tokens(tiny: Kit, kv_dtype: str) -> None:
    prompts = _prompts(8, seed=1)
    roomy = tiny.engine(kv_dtype=kv_dtype, page_tokens=16)
    tight = tiny.engine(kv_dtype=kv_dtype, page_tokens=16, num_pages=14)
    answers = []
    for engine in (roomy, tight):
        for number, ids in enumerate(prompts):
            seeded = Sampling(temperature=0.7, seed=number, max_tokens=30, logit_bias=NO_END)
            engine.add(number, ids, sampling=seeded if number % 2 else _greedy(30))
        answers.append({key: a.text for key, a in drain(engine).items()})
    assert tight.occupancy().preemptions > 0
    assert roomy.occupancy().preemptions == 0
    assert answers[0] == answers[1]


@pytest.mark.parametrize("kv_dtype", ["fp32", "int8"])
@pytest.mark.parametrize("poison", [0x7F, 0xFF])
def test_what_freed_pages_hold_changes_nothing(tiny: Kit, kv_dtype: str, poison: int) -> None:
    prompts = _prompts(6, seed=2)
    clean = [answer(tiny.engine(kv_dtype=kv_dtype), ids, _greedy(20)).text for ids in prompts]
    engine = tiny.engine(kv_dtype=kv_dtype, page_tokens=32, num_pages=12)

    def poisoned() -> None:
        owned = {
            page for sequence_id in range(len(prompts)) for page in engine.pages.table(sequence_id)
        }
        free = [page for page in range(engine.pages.num_pages) if page not in owned]
        engine._pool.storage[free] = poison

    poisoned()
    for number, ids in enumerate(prompts):
        engine.add(number, ids, sampling=_greedy(20))
    answers = drain(engine, each_step=poisoned)
    assert [answers[number, 0].text for number in range(6)] == clean


@pytest.mark.parametrize("page_tokens", [16, 32, 64])
def test_the_page_size_is_nobodys_business(tiny: Kit, page_tokens: int) -> None:
    for length in (1, 15, 16, 17, 31, 32, 33, 63, 64, 65):
        ids = [(7 * i) % 256 for i in range(length)]
        expected = answer(tiny.engine(page_tokens=32), ids, _greedy(20)).text
        assert answer(tiny.engine(page_tokens=page_tokens), ids, _greedy(20)).text == expected


def test_the_chunk_size_of_prefill_is_nobodys_business(tiny: Kit) -> None:
    ids = _prompts(1, seed=3)[0] * 3
    texts = {answer(tiny.engine(step_tokens=n), ids, _greedy(10)).text for n in (16, 17, 64, 999)}
    assert len(texts) == 1


def test_an_aborted_request_frees_its_pages_at_once(tiny: Kit) -> None:
    engine = tiny.engine(step_tokens=16)
    engine.add(1, [3] * 100, sampling=_greedy(50), num_choices=2)
    engine.step()
    assert engine.pages.num_available < engine.pages.num_pages, "in the middle of its prefill"
    engine.abort(1)
    assert engine.pages.num_available == engine.pages.num_pages
    assert not engine.busy
    assert engine.step() == []
    engine.abort(1)


def test_an_abort_leaves_the_others_alone(tiny: Kit) -> None:
    kept = _prompts(1, seed=4)[0]
    expected = answer(tiny.engine(), kept, _greedy(20)).text
    engine = tiny.engine()
    engine.add(1, [9] * 40, sampling=_greedy(50))
    engine.add(2, kept, sampling=_greedy(20))
    engine.step()
    engine.abort(1)
    assert drain(engine)[2, 0].text == expected


def test_the_answer_ends_before_a_stop_string_that_spans_tokens(tiny: Kit) -> None:
    ids = _prompts(1, seed=5)[0]
    whole = answer(tiny.engine(), ids, _greedy(30))
    assert whole.num_tokens == 30
    at = len(whole.text) // 2
    stop = whole.text[at : at + 3]
    first = whole.text.index(stop)
    sampling = Sampling(temperature=0, max_tokens=30, logit_bias=NO_END, stop=("zz", stop))
    stopped = answer(tiny.engine(), ids, sampling)
    assert stopped.text == whole.text[:first]
    assert stopped.reason == "stop"
    assert stopped.num_tokens < 30


def test_reasons_tell_a_natural_end_from_a_cut(tiny: Kit) -> None:
    ids = [1, 2, 3]
    assert answer(tiny.engine(), ids, _greedy(5)).reason == "length"
    ended = answer(tiny.engine(), ids, Sampling(temperature=0, logit_bias={258: 100.0}))
    assert (ended.text, ended.reason, ended.num_tokens) == ("", "stop", 1)


def test_choices_of_a_request_share_the_prompt_and_differ(tiny: Kit) -> None:
    engine = tiny.engine()
    sampling = Sampling(temperature=1.5, seed=4, max_tokens=12, logit_bias=NO_END)
    engine.add(1, [1, 2, 3], sampling=sampling, num_choices=3)
    first = drain(engine)
    assert len({first[1, index].text for index in range(3)}) == 3
    engine.add(2, [1, 2, 3], sampling=sampling, num_choices=3)
    again = drain(engine)
    assert [again[2, i].text for i in range(3)] == [first[1, i].text for i in range(3)]


def test_what_can_never_fit_is_refused_at_once(tiny: Kit) -> None:
    engine = tiny.engine(page_tokens=16, num_pages=4)
    assert engine.max_context == 64, "the pool is smaller than the model's own limit"
    for prompt, max_tokens, param in (
        ([1] * 64, None, None),
        ([1] * 40, 25, "max_tokens"),
        ([1] * 1000, 1, None),
    ):
        with pytest.raises(RequestRefused) as caught:
            engine.add(1, prompt, sampling=Sampling(max_tokens=max_tokens))
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", param)
    engine.add(1, [1] * 40, sampling=_greedy(24))
    assert drain(engine)[1, 0].num_tokens == 24


def test_without_max_tokens_an_answer_ends_with_the_context(tiny: Kit) -> None:
    engine = tiny.engine(page_tokens=16, num_pages=4)
    engine.add(1, [1] * 50, sampling=Sampling(temperature=0, logit_bias=NO_END))
    assert drain(engine)[1, 0].num_tokens == 14


@pytest.mark.parametrize(
    ("prompt", "sampling", "param"),
    [
        ([], GREEDY, "prompt"),
        ([259], GREEDY, "prompt"),
        ([-1], GREEDY, "prompt"),
        ([1], Sampling(logit_bias={259: 1.0}), "logit_bias"),
    ],
)
def test_impossible_token_ids_are_refused(
    tiny: Kit, prompt: list[int], sampling: Sampling, param: str
) -> None:
    with pytest.raises(RequestRefused) as caught:
        tiny.engine().add(1, prompt, sampling=sampling)
    assert caught.value.param == param


@pytest.fixture
def padded(tiny: Kit) -> Kit:
    """A model with rows behind its last token, and an end that is declared to be one of them."""
    known = tiny.tokenizer.vocabulary
    fewer = msgspec.structs.replace(
        known, names=known.names[:200], pieces=known.pieces[:200], controls=frozenset()
    )
    return Kit(tiny.model, Tokenizer(msgspec.structs.replace(fewer, end_ids=frozenset({258}))))


@pytest.mark.parametrize(
    ("prompt", "sampling", "param"),
    [([200], GREEDY, "prompt"), ([1], Sampling(logit_bias={200: 1.0}), "logit_bias")],
)
def test_an_id_in_the_padding_of_the_vocabulary_is_refused(
    padded: Kit, prompt: list[int], sampling: Sampling, param: str
) -> None:
    with pytest.raises(RequestRefused, match="199") as caught:
        padded.engine().add(1, prompt, sampling=sampling)
    assert caught.value.param == param


@pytest.mark.parametrize("wanted", [{"ignore_eos": True}, {"min_tokens": 3}])
def test_a_model_without_an_end_that_it_can_write_answers_all_the_same(
    padded: Kit, wanted: dict
) -> None:
    sampling = Sampling(temperature=0, max_tokens=5, repetition_penalty=1.2, **wanted)
    assert answer(padded.engine(), [1, 199], sampling).num_tokens == 5


def test_random_arrivals_and_aborts_at_a_full_pool_change_no_answer(tiny: Kit) -> None:
    source = random.Random(6)
    prompts = _prompts(24, seed=6)
    expected = [answer(tiny.engine(page_tokens=16), ids, _greedy(16)).text for ids in prompts]
    engine = tiny.engine(page_tokens=16, num_pages=12, step_tokens=32, max_batch=6)
    aborted: set[int] = set()
    waiting = list(range(24))

    def arrivals_and_aborts() -> None:
        for _ in range(source.randrange(3)):
            if waiting:
                number = waiting.pop()
                engine.add(number, prompts[number], sampling=_greedy(16))
        if source.random() < 0.1:
            victim = source.randrange(24)
            engine.abort(victim)
            aborted.add(victim)

    arrivals_and_aborts()
    while not engine.busy:
        arrivals_and_aborts()
    answers = drain(engine, each_step=arrivals_and_aborts)
    finished = {number for number, _ in answers}
    assert len(finished) >= 12
    assert {n: answers[n, 0].text for n in finished} == {n: expected[n] for n in finished}
    assert engine.occupancy().preemptions > 0
    assert engine.pages.num_available == 12


def test_no_piece_of_a_real_stream_splits_a_character(smollm2: Kit) -> None:
    text = "Repeat exactly: 🚀🌍 今天天气很好"
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n🚀🌍 今天"
    ids = smollm2.tokenizer.encode(prompt)
    # Forced to go on with the same characters, each of which takes several tokens.
    forced = smollm2.tokenizer.encode("🦩天")
    engine: Engine = smollm2.engine()
    pieces = []
    for length in range(1, len(forced) + 1):
        sampling = Sampling(temperature=0, max_tokens=1, logit_bias={forced[length - 1]: 100.0})
        pieces += answer(engine, ids + forced[: length - 1], sampling).pieces
    whole = answer(engine, ids, Sampling(temperature=0, max_tokens=16))
    assert pieces.count("�") > 0, "cut off inside a character, one token each"
    assert all("�" not in piece for piece in whole.pieces[:-1])


def test_logprobs_come_with_the_text_of_their_tokens(tiny: Kit) -> None:
    engine = tiny.engine()
    sampling = Sampling(temperature=0, max_tokens=8, top_logprobs=1, logit_bias={97: 100.0})
    engine.add(1, [1, 2], sampling=sampling)
    events = [event for _ in range(8) for event in engine.step()]
    deltas = [event for event in events if hasattr(event, "text")]
    assert [[c.chosen.token for c in delta.logprobs] for delta in deltas] == [[b"a"]] * 8
    assert torch.tensor([d.logprobs[0].chosen.logprob for d in deltas]).max() <= 0
