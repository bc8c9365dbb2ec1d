"""What an engine keeps of its requests, on a tiny model: hits, shared prompts, purges, pins."""

import random

import pytest
from enginekit import Kit, drain

from engine.engine import Engine
from engine.process.protocol import Finished, Moment, Purge, Sharing
from engine.sampling import Sampling

NO_END = {256: -100.0, 258: -100.0}
PAGE = 16


def greedy(max_tokens: int) -> Sampling:
    return Sampling(temperature=0, max_tokens=max_tokens, logit_bias=NO_END)


def at(sequence: int) -> Moment:
    return Moment(generation="g", sequence=sequence)


def ask(
    engine: Engine, ids: list[int], *, max_tokens: int = 8, num_choices: int = 1, **sharing: object
) -> tuple[str, int]:
    """One request alone: its first choice's text, and the tokens that the cache gave."""
    engine.add(
        1, ids, sampling=greedy(max_tokens), num_choices=num_choices, sharing=Sharing(**sharing)
    )
    text, cached = "", 0
    while engine.busy:
        for event in engine.step():
            if isinstance(event, Finished):
                cached += event.cached_tokens
            elif event.index == 0:
                text += event.text
        engine.pages.check_integrity()
    return text, cached


def prompt(length: int, seed: int = 0) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(256) for _ in range(length)]


@pytest.mark.parametrize("kv_dtype", ["fp32", "int8"])
def test_a_prompt_that_is_known_answers_as_it_did_and_says_what_was_known(
    tiny: Kit, kv_dtype: str
) -> None:
    for length in (1, 15, 16, 17, 31, 32, 33, 48, 49, 100):
        engine = tiny.engine(kv_dtype=kv_dtype, page_tokens=PAGE)
        ids = prompt(length)
        cold = ask(engine, ids)
        assert cold[1] == 0
        # All but the last token, as far as prompt and answer, but for its last token, filled pages.
        known = min(length - 1, (length + 7) // PAGE * PAGE)
        assert ask(engine, ids) == (cold[0], known)


@pytest.mark.parametrize("kv_dtype", ["fp32", "int8"])
@pytest.mark.parametrize("parting", [1, 15, 17, 31, 33, 47])
def test_a_prompt_that_leaves_a_page_in_its_middle_is_computed_from_there(
    tiny: Kit, kv_dtype: str, parting: int
) -> None:
    engine = tiny.engine(kv_dtype=kv_dtype, page_tokens=PAGE)
    known, other = prompt(60), prompt(60, seed=1)
    other[parting] = known[parting] ^ 1
    asked = [*known[:parting], *other[parting:]]
    before = ask(engine, known)
    expected = ask(tiny.engine(kv_dtype=kv_dtype, page_tokens=PAGE), asked)
    assert ask(engine, asked) == (expected[0], parting)
    assert ask(engine, known)[0] == before[0], "what was copied stays as it was"


def test_a_page_is_copied_even_where_it_has_to_go_for_its_copy(tiny: Kit) -> None:
    ids = prompt(48)
    asked = [*ids[:40], *prompt(10, seed=1)]
    engine = tiny.engine(page_tokens=PAGE, num_pages=4)
    ask(engine, ids)
    assert engine.pages.num_free == 1, "two are needed behind the two that are shared"
    assert ask(engine, asked) == (ask(tiny.engine(page_tokens=PAGE), asked)[0], 40)


def test_a_conversation_is_computed_from_where_it_goes_on(tiny: Kit) -> None:
    engine = tiny.engine(page_tokens=PAGE)
    ids = prompt(40)
    engine.add(1, ids, sampling=greedy(30))
    (sequence,) = engine._scheduler.sequences()
    drain(engine)
    longer = [*sequence.token_ids, *prompt(20, seed=1)]
    expected = ask(tiny.engine(page_tokens=PAGE), longer)
    # The answer's last token was never computed.
    assert ask(engine, longer) == (expected[0], 69 // PAGE * PAGE)


def test_those_who_may_not_share_answers_share_no_pages(tiny: Kit) -> None:
    engine = tiny.engine(page_tokens=PAGE)
    ids = prompt(40)
    assert ask(engine, ids, isolation="tenant:a")[1] == 0
    assert ask(engine, ids, isolation="tenant:b")[1] == 0
    assert ask(engine, ids, isolation="tenant:a")[1] == 32


def test_without_a_prefix_cache_nothing_stays(tiny: Kit) -> None:
    engine = tiny.engine(page_tokens=PAGE, kv_prefix=False)
    ids = prompt(40)
    assert ask(engine, ids) == ask(engine, ids)
    assert engine.pages.num_free == engine.pages.num_pages
    assert engine.purge(Purge(everything=True)).num_pages == 0


@pytest.mark.parametrize("kept", [{}, {"kv_prefix": False}])
@pytest.mark.parametrize("length", [1, 16, 17, 40, 65])
def test_choices_share_the_pages_of_the_prompt_and_differ_by_their_seeds(
    tiny: Kit, kept: dict, length: int
) -> None:
    ids = prompt(length, seed=2)
    sampling = Sampling(temperature=1.5, seed=4, max_tokens=20, logit_bias=NO_END)
    alone = []
    for num_choices in (1, 2, 3, 4):
        engine = tiny.engine(page_tokens=PAGE, **kept)
        engine.add(1, ids, sampling=sampling, num_choices=num_choices)
        answers = drain(engine)
        alone.append([answers[1, index].text for index in range(num_choices)])
    assert all(texts == alone[-1][: len(texts)] for texts in alone)
    assert len(set(alone[-1])) == 4


def test_a_prompt_is_computed_once_for_all_its_choices(tiny: Kit) -> None:
    engine = tiny.engine(page_tokens=PAGE, step_tokens=32)
    engine.add(1, prompt(100), sampling=greedy(10), num_choices=8)
    while engine._scheduler.num_waiting:
        engine.step()
    # Six full pages are everybody's, the seventh is each choice's own.
    assert engine.pages.num_pages - engine.pages.num_available == 6 + 8
    assert engine._num_steps == 5, "four of prefill, one in which the others begin"


def test_many_choices_finish_when_memory_is_short(tiny: Kit) -> None:
    sampling = Sampling(temperature=1.0, seed=1, max_tokens=40, logit_bias=NO_END)
    texts = []
    for fields in ({"num_pages": 64}, {"num_pages": 9}, {"num_pages": 9, "kv_swap_bytes": 0}):
        engine = tiny.engine(page_tokens=PAGE, **fields)
        engine.add(1, prompt(50), sampling=sampling, num_choices=5)
        answers = drain(engine)
        texts.append([answers[1, index].text for index in range(5)])
        assert engine.pages.num_available == engine.pages.num_pages
    assert texts[0] == texts[1] == texts[2]
    assert engine.occupancy().preemptions > 0


def test_an_aborted_prefill_leaves_no_page_but_those_that_are_finished(tiny: Kit) -> None:
    engine = tiny.engine(page_tokens=PAGE, step_tokens=24)
    engine.add(1, prompt(100), sampling=greedy(8), num_choices=3)
    engine.step()
    engine.abort(1)
    engine.pages.check_integrity()
    assert engine.pages.num_available == engine.pages.num_pages
    assert engine.occupancy().cached_pages == 1, "of 24 tokens"
    cold = ask(tiny.engine(page_tokens=PAGE), prompt(100))
    assert ask(engine, prompt(100)) == (cold[0], 16)


def test_a_purge_by_tag_drops_its_pages_and_leaves_others(tiny: Kit) -> None:
    engine = tiny.engine(page_tokens=PAGE)
    ask(engine, prompt(40), tags=("a",), as_of=at(0))
    ask(engine, prompt(40, seed=1), tags=("b",), as_of=at(0))
    dry = Purge(tags=("a",), dry_run=True, moment=at(0))
    assert engine.purge(dry).num_pages == 2
    assert engine.purge(Purge(tags=("a",), moment=at(1))).num_pages == 2
    assert ask(engine, prompt(40), tags=("a",), as_of=at(1))[1] == 0
    assert ask(engine, prompt(40, seed=1), tags=("b",), as_of=at(1))[1] == 32
    assert engine.purge(Purge(everything=True, moment=at(2))).num_pages == 4


def test_a_request_in_flight_when_its_tag_is_purged_publishes_nothing(tiny: Kit) -> None:
    engine = tiny.engine(page_tokens=PAGE, step_tokens=24)
    ids = prompt(100)
    engine.add(1, ids, sampling=greedy(20), sharing=Sharing(tags=("a",), as_of=at(0)))
    engine.add(2, ids[:50], sampling=greedy(20), sharing=Sharing(tags=("b",), as_of=at(0)))
    engine.step()
    assert engine.purge(Purge(tags=("a",), moment=at(1))).num_pages == 1
    drain(engine)
    assert ask(engine, ids, max_tokens=1, tags=("a",), as_of=at(1))[1] <= 50, "what b has as well"
    engine.purge(Purge(tags=("b",), moment=at(2)))
    assert engine.occupancy().cached_pages == 0, "all else of it depended on b"


def test_a_request_that_is_older_than_the_purge_of_its_tag_publishes_nothing(tiny: Kit) -> None:
    engine = tiny.engine(page_tokens=PAGE)
    ask(engine, prompt(40), tags=("a",), as_of=at(4))
    engine.purge(Purge(tags=("a",), moment=at(5)))
    ask(engine, prompt(40), tags=("a",), as_of=at(4))
    assert engine.occupancy().cached_pages == 0
    assert ask(engine, prompt(40), tags=("a",), as_of=at(5))[1] == 0
    assert ask(engine, prompt(40), tags=("a",), as_of=at(5))[1] == 32


def test_a_purge_that_nobody_told_of_empties_the_cache(tiny: Kit) -> None:
    engine = tiny.engine(page_tokens=PAGE)
    ask(engine, prompt(40), as_of=at(4))
    assert ask(engine, prompt(40), as_of=at(4))[1] == 32
    assert ask(engine, prompt(40), as_of=at(5))[1] == 0


def test_a_request_whose_tags_are_not_known_is_dropped_by_any_purge(tiny: Kit) -> None:
    engine = tiny.engine(page_tokens=PAGE)
    ask(engine, prompt(40), tags=None, as_of=at(0))
    assert engine.purge(Purge(tags=("whatever",), moment=at(1))).num_pages == 2


def test_a_pinned_beginning_outlasts_what_comes_after(tiny: Kit) -> None:
    system = "You answer in the manner of a lighthouse keeper, at some length."
    ids = tiny.tokenizer.encode(system + " Question one?")
    pinned = len(tiny.tokenizer.encode(system)) // PAGE * PAGE
    engine = tiny.engine(page_tokens=PAGE, num_pages=16, kv_pin=(system,))
    ask(engine, ids)
    for seed in range(4):
        ask(engine, prompt(150, seed=seed))
    assert engine.occupancy().pinned_pages == pinned // PAGE
    assert ask(engine, ids)[1] == pinned
    plain = tiny.engine(page_tokens=PAGE, num_pages=16)
    ask(plain, ids)
    for seed in range(4):
        ask(plain, prompt(150, seed=seed))
    assert ask(plain, ids)[1] == 0


def test_pins_give_way_to_a_request_that_needs_the_whole_pool(tiny: Kit) -> None:
    engine = tiny.engine(page_tokens=PAGE, num_pages=8, kv_pin=("0123456789" * 4,))
    ask(engine, tiny.tokenizer.encode("0123456789" * 4 + "!"))
    assert engine.occupancy().pinned_pages == 2
    expected = ask(tiny.engine(page_tokens=PAGE, num_pages=64), prompt(100), max_tokens=28)
    assert ask(engine, prompt(100), max_tokens=28)[0] == expected[0]
