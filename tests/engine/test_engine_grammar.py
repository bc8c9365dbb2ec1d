"""Grammars on their way through the engine, over a tiny model of random weights."""

import json

import numpy as np
import pytest
from enginekit import Kit

from engine.engine import Engine
from engine.errors import GrammarFault
from engine.grammars.constraint import Constraint
from engine.grammars.grammar import Grammar, Grammars
from engine.grammars.matcher import Matcher
from engine.process.protocol import Delta, Failed, Finished
from engine.sampling import Sampling
from engine.text.toolformat import HERMES

PROMPT = [72, 101, 108, 108, 111]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["é🎉", "好"]}, "b": {"type": "boolean"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
HOT = Sampling(temperature=2.0, seed=5, max_tokens=300)


class Failing(Matcher):
    """Gives out with the third token."""

    def __init__(self) -> None:
        self._left = 2

    def allowed(self) -> np.ndarray:
        allowed = np.ones(259, dtype=np.bool_)
        allowed[258] = False
        return allowed

    def allows(self, token_id: int) -> bool:
        return bool(self.allowed()[token_id])

    def accept(self, token_id: int) -> None:
        if not self._left:
            raise GrammarFault("too complex")
        self._left -= 1

    @property
    def complete(self) -> bool:
        return False


class Broken(Failing):
    """Has a bug of its own."""

    def allows(self, token_id: int) -> bool:
        raise RuntimeError("a bug")


class FailingGrammar(Grammar):
    def __init__(self, matcher: type[Failing] = Failing) -> None:
        self._matcher = matcher

    def matcher(self) -> Matcher:
        return self._matcher()


def _grammar(tiny: Kit) -> Grammar:
    return Grammars(tiny.tokenizer, HERMES).compile(Constraint(schema=json.dumps(SCHEMA)))


def _run(engine: Engine) -> list[Delta | Finished | Failed]:
    events: list[Delta | Finished | Failed] = []
    while engine.busy:
        events += engine.step()
        engine.pages.check_integrity()
    return events


def _texts(events: list[Delta | Finished | Failed]) -> dict[tuple[int, int], str]:
    texts: dict[tuple[int, int], str] = {}
    for event in events:
        if isinstance(event, Delta):
            key = (event.request_id, event.index)
            texts[key] = texts.get(key, "") + event.text
    return texts


def test_random_weights_write_json_of_the_schema_in_every_choice(tiny: Kit) -> None:
    engine = tiny.engine()
    engine.add(1, PROMPT, sampling=HOT, num_choices=4, grammar=_grammar(tiny))
    events = _run(engine)
    answers = [json.loads(text) for text in _texts(events).values()]
    assert len(answers) == 4
    assert all(answer["a"] in ("é🎉", "好") for answer in answers)
    reasons = [event.reason for event in events if isinstance(event, Finished)]
    assert reasons == ["stop"] * 4


def test_a_grammar_changes_nothing_for_its_neighbours(tiny: Kit) -> None:
    alone, beside = tiny.engine(), tiny.engine()
    sampling = Sampling(temperature=1.0, seed=3, max_tokens=30)
    alone.add(2, PROMPT, sampling=sampling)
    beside.add(1, PROMPT, sampling=HOT, grammar=_grammar(tiny))
    beside.add(2, PROMPT, sampling=sampling)
    assert _texts(_run(alone))[2, 0] == _texts(_run(beside))[2, 0]


def test_preempted_sequences_go_on_in_their_grammar(tiny: Kit) -> None:
    """A pool too small for all: some are computed anew in the middle of their JSON."""
    engine = tiny.engine(page_tokens=16, num_pages=6, max_batch=4)
    for request_id in range(4):
        sampling = Sampling(temperature=2.0, seed=request_id, max_tokens=60)
        engine.add(request_id, PROMPT, sampling=sampling, grammar=_grammar(tiny))
    events = _run(engine)
    finished = [event for event in events if isinstance(event, Finished)]
    assert len(finished) == 4
    for event in finished:
        if event.reason == "stop":
            json.loads(_texts(events)[event.request_id, 0])


def test_a_fault_ends_its_request_with_an_error_and_no_other(tiny: Kit) -> None:
    engine = tiny.engine()
    engine.add(1, PROMPT, sampling=HOT, num_choices=2, grammar=FailingGrammar())
    engine.add(2, PROMPT, sampling=HOT, grammar=_grammar(tiny))
    events = _run(engine)
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert (failed.request_id, failed.code) == (1, "grammar_fault")
    assert "too complex" in failed.message
    json.loads(_texts(events)[2, 0])
    assert not [e for e in events[events.index(failed) + 1 :] if e.request_id == 1]


def test_a_fault_leaves_alone_who_has_no_text_to_show_in_that_step(tiny: Kit) -> None:
    """All text of the second request is held back: it may be the beginning of its stop string."""
    held = Sampling(temperature=0, max_tokens=12, stop=("z" * 20,), logit_bias={ord("z"): 100.0})
    engine = tiny.engine()
    engine.add(1, PROMPT, sampling=HOT, grammar=FailingGrammar())
    engine.add(2, PROMPT, sampling=held, num_choices=2)
    events = _run(engine)
    assert [event.request_id for event in events if isinstance(event, Failed)] == [1]
    assert _texts(events)[2, 0] == _texts(events)[2, 1] == "z" * 12


def test_a_bug_in_one_choices_sampling_ends_its_request_alone(
    tiny: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    engine = tiny.engine()
    engine.add(1, PROMPT, sampling=HOT, num_choices=2, grammar=FailingGrammar(Broken))
    engine.add(2, PROMPT, sampling=HOT, grammar=_grammar(tiny))
    events = _run(engine)
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert (failed.request_id, failed.code) == (1, "engine_fault")
    assert "a bug" in caplog.text
    json.loads(_texts(events)[2, 0])
    assert engine.pages.num_available == engine.pages.num_pages
