import queue
import threading

import pytest
from enginekit import Kit

from engine.errors import RequestRefused
from engine.grammars.compiling import Compiled, Compiler
from engine.grammars.constraint import Constraint
from engine.grammars.grammar import Grammar, Grammars
from engine.process.protocol import Request
from engine.text.toolformat import HERMES

ANY = Constraint(schema='{"type":"object"}')
WRONG = Constraint(schema='{"type":"wibble"}')


class Slow(Grammars):
    """Compiles when it may."""

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit.tokenizer, HERMES)
        self.may = threading.Event()

    def compile(self, constraint: Constraint) -> Grammar:
        assert self.may.wait(30)
        return super().compile(constraint)


@pytest.fixture
def slow(tiny: Kit) -> Slow:
    return Slow(tiny)


def test_a_grammar_is_delivered_later_and_kept(slow: Slow) -> None:
    delivered: queue.SimpleQueue[Compiled] = queue.SimpleQueue()
    compiler = Compiler(slow, delivered.put)
    compiler.submit(1, Request(prompt="a"), ANY)
    assert delivered.empty()
    slow.may.set()
    compiled = delivered.get(timeout=30)
    assert compiler.take(compiled.request_id)
    assert not compiler.take(compiled.request_id)
    assert compiled.request == Request(prompt="a")
    assert compiler.kept(ANY) is compiled.outcome


def test_a_request_that_was_dropped_meanwhile_is_not_taken(slow: Slow) -> None:
    delivered: queue.SimpleQueue[Compiled] = queue.SimpleQueue()
    compiler = Compiler(slow, delivered.put)
    compiler.submit(1, Request(prompt="a"), ANY)
    compiler.submit(2, Request(prompt="b"), ANY)
    compiler.drop(1)
    compiler.drop(7)
    slow.may.set()
    taken = [compiler.take(delivered.get(timeout=30).request_id) for _ in range(2)]
    assert taken == [False, True]


def test_what_nobody_waits_for_any_more_is_not_compiled(slow: Slow) -> None:
    delivered: queue.SimpleQueue[Compiled] = queue.SimpleQueue()
    compiler = Compiler(slow, delivered.put)
    for request_id in range(100):
        compiler.submit(request_id, Request(prompt="a"), ANY)
    for request_id in range(1, 99):
        compiler.drop(request_id)
    slow.may.set()
    assert [delivered.get(timeout=30).request_id for _ in range(2)] == [0, 99]
    assert delivered.empty()


def test_too_many_that_wait_are_refused(slow: Slow) -> None:
    compiler = Compiler(slow, lambda _: None)
    for request_id in range(256):
        compiler.submit(request_id, Request(prompt="a"), ANY)
    with pytest.raises(RequestRefused) as caught:
        compiler.submit(256, Request(prompt="a"), ANY)
    assert caught.value.code == "grammars_busy"
    compiler.drop(255)
    compiler.submit(256, Request(prompt="a"), ANY)
    slow.may.set()


def test_what_is_no_schema_is_delivered_as_a_refusal(slow: Slow) -> None:
    delivered: queue.SimpleQueue[Compiled] = queue.SimpleQueue()
    slow.may.set()
    Compiler(slow, delivered.put).submit(1, Request(prompt="a"), WRONG)
    outcome = delivered.get(timeout=30).outcome
    assert isinstance(outcome, RequestRefused)
    assert outcome.param == "response_format"
