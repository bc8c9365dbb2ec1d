"""Time and memory of templates, which come with models: on such as want all of it."""

import signal

import pytest
from enginekit import Kit

from engine.errors import ModelUnusable, RequestRefused
from engine.process.protocol import Message
from engine.text.chat import ChatTemplate
from engine.text.renderer import Renderer, TemplateFault

CHAT = (Message(role="user", content="Hi"),)
NUMBERS = (
    "{% set s = namespace(f='f') %}{% set n = (s.f * 1000000) | int(base=16) %}"
    "{% set m = (s.f * 500000) | int(base=16) - 2 %}"
)
GREEDY = {
    "nests": "".join(f"{{% for a{n} in range(99999) %}}" for n in range(5)) + "{% endfor %}" * 5,
    "recursion": (
        "{% macro f(n) %}{{ f(n - 1) if n }}{{ f(n - 1) if n }}{% endmacro %}{{ f(60) }}"
    ),
    "doubling": (
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}"
        "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ messages[0].content }}"
    ),
    "format": "{{ '%99999999999d' % messages | length }}",
    "padding": "{{ '{:>99999999999}'.format(messages | length) }}",
    "constant": "{{ '%99999999999d' % 1 }}",
    "text": "{{ messages[0].content * 10**10 }}",
    "list": "{{ [0] * 10**10 }}",
}
"""An interpreter could end them, or an allocator."""
UNINTERRUPTED = {
    "power": "{{ 7 ** 100000000 }}",
    "rounding": "{{ 1 | round(-30000000) }}",
    "rounding up": "{{ 1 | round(30000000, 'ceil') }}",
    "sum": "{{ ([[0] * 1000] * 1000000) | sum(start=[]) | length }}",
    "equal": (
        "{% set ns = namespace(a=[0], b=[0]) %}{% for i in range(60) %}"
        "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}"
    ),
    "hash": (
        "{% set ns = namespace(a=(0,)) %}{% for i in range(60) %}"
        "{% set ns.a = (ns.a, ns.a) %}{% endfor %}{{ {ns.a: 1} | length }}"
    ),
    "rest": NUMBERS + "{{ n % m == 1 }}",
    "divisible": NUMBERS + "{{ n is divisibleby(m) }}",
}
"""One call each, within which no handler of a signal runs."""


@pytest.mark.parametrize("name", [*GREEDY, *UNINTERRUPTED])
def test_a_template_that_takes_all_is_refused_and_the_next_request_is_served(
    tiny: Kit, name: str
) -> None:
    renderer = Renderer(cpu_s=0.2, memory_bytes=256 * 2**20)
    source = (GREEDY | UNINTERRUPTED)[name]
    with pytest.raises((RequestRefused, ModelUnusable), match="chat template"):
        ChatTemplate(source, tiny.tokenizer, renderer=renderer).encode(CHAT)
    kind = ChatTemplate("{{ messages[0].content }}", tiny.tokenizer, renderer=renderer)
    assert kind.encode(CHAT) == tiny.tokenizer.encode("Hi")


@pytest.mark.parametrize("name", UNINTERRUPTED)
def test_what_nothing_inside_can_end_is_told_by_what_it_took(name: str) -> None:
    renderer = Renderer(cpu_s=0.1, memory_bytes=512 * 2**20)
    with pytest.raises(TemplateFault, match=r"more than 0\.1 s or 512 MiB"):
        renderer.render(UNINTERRUPTED[name], {})


def test_each_request_has_the_time_anew() -> None:
    renderer = Renderer(cpu_s=0.3)
    busy = "{% for a in range(99999) %}{% endfor %}{{ x }}"
    assert [renderer.render(busy, {"x": n}) for n in range(60)] == [str(n) for n in range(60)]


def test_a_process_that_was_killed_meanwhile_is_replaced(renderer: Renderer) -> None:
    own = Renderer()
    assert own.render("{{ x }}", {"x": 1}) == "1"
    assert own._process is not None
    own._process.kill()
    own._process.wait()
    assert own.render("{{ x }}", {"x": 2}) == "2"


@pytest.mark.parametrize("size", [1, 10_000_000])
def test_a_process_that_is_stopped_fails_one_request_and_is_replaced(tiny: Kit, size: int) -> None:
    """Also where it does not even read all that it is asked."""
    own = Renderer()
    chat = ChatTemplate("{{ messages[0].content }}", tiny.tokenizer, renderer=own)
    process = own._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    own.patience_s = 0.1
    with pytest.raises(RequestRefused, match="gave no answer for") as caught:
        chat.encode((Message(role="user", content="a" * size),))
    assert caught.value.code == "engine_fault"
    assert process.returncode == -signal.SIGKILL
    own.patience_s = 60
    assert chat.encode(CHAT) == tiny.tokenizer.encode("Hi")


def test_a_process_that_does_not_die_at_once_is_waited_for_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.text.renderer._REAP_S", 0.0)
    own = Renderer()
    own.check("fine")
    process = own._process
    assert process is not None
    own._replace()
    assert process.wait() == -signal.SIGKILL
    assert own.render("{{ x }}", {"x": 1}) == "1"


def test_what_there_is_no_memory_for_is_told_and_the_process_goes_on() -> None:
    own = Renderer(memory_bytes=64 * 2**20)
    own.check("fine")
    process = own._process
    for size in (100, 45, 25):  # MiB: for the frame, for the text in it, for what is made of it
        with pytest.raises(TemplateFault, match=r"memory|MemoryError"):
            own.render("{{ x ~ x }}", {"x": "a" * (size << 20)})
    assert own.render("{{ x }}", {"x": 1}) == "1"
    assert own._process is process


def test_who_is_not_needed_any_more_leaves_no_process() -> None:
    own = Renderer()
    own.check("{{ x }}")
    process = own._process
    assert process is not None
    del own
    assert process.returncode is not None


def test_texts_that_cannot_be_sent_are_refused(renderer: Renderer) -> None:
    with pytest.raises(TemplateFault):
        renderer.render("{{ '\\ud800' }}", {})
    with pytest.raises(TemplateFault):
        renderer.render("{{ x }}", {"x": "\ud800"})


def test_whatever_a_template_raises_is_told_and_the_process_goes_on(renderer: Renderer) -> None:
    renderer.check("fine")
    process = renderer._process
    with pytest.raises(TemplateFault, match="at least one item"):
        renderer.render("{{ cycler().next() }}", {})
    assert renderer._process is process
