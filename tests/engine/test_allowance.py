"""Time and memory of code that came with a model, on templates that want all of it."""

import resource
import signal

import pytest
from enginekit import Kit

from engine.errors import RequestRefused
from engine.process.protocol import Message
from engine.text import chat
from engine.text.allowance import AllowanceSpent, allowance
from engine.text.chat import ChatTemplate

CHAT = (Message(role="user", content="Hi"),)
NESTS = "".join(f"{{% for a{n} in range(99999) %}}" for n in range(5)) + "{% endfor %}" * 5
RECURSION = "{% macro f(n) %}{{ f(n - 1) if n }}{{ f(n - 1) if n }}{% endmacro %}{{ f(60) }}"
DOUBLING = (
    "{% set ns = namespace(x='ab') %}{% for i in range(60) %}"
    "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ messages[0].content }}"
)
WIDE = "{{ '%99999999999d' % messages | length }}"
PADDED = "{{ '{:>99999999999}'.format(messages | length) }}"
CONSTANT = "{{ '%99999999999d' % 1 }}"
BIG = 256 * 2**20


def test_what_is_within_it_runs_as_ever_and_leaves_nothing_behind() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS), signal.getsignal(signal.SIGPROF)
    with allowance(cpu_s=5, memory_bytes=BIG):
        kept = bytes(2**20)
    assert len(kept) == 2**20
    with pytest.raises(KeyError), allowance(cpu_s=5, memory_bytes=BIG):
        raise KeyError
    assert before == (resource.getrlimit(resource.RLIMIT_AS), signal.getsignal(signal.SIGPROF))
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_time_and_memory_are_each_an_end() -> None:
    with pytest.raises(AllowanceSpent, match=r"0\.05 s"), allowance(cpu_s=0.05, memory_bytes=BIG):
        while True:
            pass
    with pytest.raises(AllowanceSpent, match="256 MiB"), allowance(cpu_s=5, memory_bytes=BIG):
        bytes(8 * BIG)
    assert len(bytes(2 * BIG)) == 2 * BIG, "what is behind it may take more"


def test_code_that_swallows_the_first_interruption_meets_the_next() -> None:
    with pytest.raises(AllowanceSpent), allowance(cpu_s=0.05, memory_bytes=BIG):
        try:
            while True:
                pass
        except AllowanceSpent:
            while True:
                pass


@pytest.mark.parametrize(
    "source", [NESTS, RECURSION, DOUBLING, WIDE, PADDED, CONSTANT],
    ids=["nests", "recursion", "doubling", "format", "padding", "constant"],
)  # fmt: skip
def test_a_template_that_takes_all_is_refused_and_the_next_request_is_served(
    tiny: Kit, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(chat, "_CPU_S", 0.1)
    hostile = ChatTemplate(source, tiny.tokenizer)
    for _ in range(2):
        with pytest.raises(RequestRefused, match="chat template") as caught:
            hostile.encode(CHAT)
        assert caught.value.param == "messages"
    kind = ChatTemplate("{{ messages[0].content }}", tiny.tokenizer)
    assert kind.encode(CHAT) == tiny.tokenizer.encode("Hi")
