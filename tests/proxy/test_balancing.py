"""Whose turn it is, and what makes two prompts begin alike."""

import json
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstreams.balancing import SLACK, least_busy, prefix_affinity, round_robin
from proxy.upstreams.prefix import PREFIX_BYTES, prefix_of


@dataclass
class Server:
    name: str
    weight: int = 1
    in_flight: int = 0
    turn: int = 0


def servers(*weights: int) -> list[Server]:
    return [Server(str(number), weight) for number, weight in enumerate(weights)]


def test_round_robin_takes_equals_in_turn() -> None:
    three = servers(1, 1, 1)
    assert [round_robin(three)[0] for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_round_robin_mixes_in_proportion_to_the_weights() -> None:
    uneven = servers(5, 1, 1)
    first = [round_robin(uneven)[0] for _ in range(7)]
    assert Counter(first) == {0: 5, 1: 1, 2: 1}
    assert first != [0] * 5 + [1, 2]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_round_robin_is_exact_over_a_round_and_orders_everyone(weights: list[int]) -> None:
    some = servers(*weights)
    orders = [round_robin(some) for _ in range(sum(weights))]
    assert [Counter(o[0] for o in orders)[i] for i in range(len(weights))] == weights
    assert all(sorted(order) == list(range(len(weights))) for order in orders)


def test_least_busy_looks_at_what_a_unit_of_weight_carries() -> None:
    some = [Server("a", 1, in_flight=2), Server("b", 4, in_flight=4), Server("c", 1, in_flight=9)]
    assert least_busy(some) == [1, 0, 2]


def test_least_busy_takes_equals_in_turn() -> None:
    two = servers(1, 1)
    assert [least_busy(two)[0] for _ in range(4)] == [0, 1, 0, 1]


def test_the_same_prefix_keeps_to_the_same_server_when_others_come_and_go() -> None:
    all_of_them = servers(1, 1, 1, 1)
    prefixes = [str(number).encode() for number in range(200)]
    before = {p: all_of_them[prefix_affinity(all_of_them, p)[0]].name for p in prefixes}
    fewer = all_of_them[:3]
    after = {p: fewer[prefix_affinity(fewer, p)[0]].name for p in prefixes}
    moved = [p for p in prefixes if before[p] != after[p]]
    assert moved
    assert all(before[p] == "3" for p in moved)


def test_prefixes_spread_over_servers_in_proportion_to_the_weights() -> None:
    some = servers(1, 3)
    first = Counter(prefix_affinity(some, str(number).encode())[0] for number in range(2000))
    assert first[1] / 2000 == pytest.approx(0.75, abs=0.05)


def test_a_prefix_goes_to_its_next_server_while_its_own_is_much_busier() -> None:
    some = servers(1, 1, 1)
    usual, second, _ = prefix_affinity(some, b"p")
    some[usual].in_flight = SLACK - 1
    assert prefix_affinity(some, b"p")[0] == usual
    some[usual].in_flight = 40
    assert prefix_affinity(some, b"p")[0] == second
    for server in some:
        server.in_flight = 40
    assert prefix_affinity(some, b"p")[0] == usual


def body(*messages: tuple[str, str], **more: object) -> bytes:
    turns = [{"role": role, "content": content} for role, content in messages]
    return json.dumps({"model": "m", "messages": turns, **more}).encode()


def test_a_conversation_keeps_its_prefix_as_it_goes_on() -> None:
    first = body(("system", "Be kind."), ("user", "Hello"))
    later = body(
        ("system", "Be kind."), ("user", "Hello"), ("assistant", "Hi."), ("user", "More"), n=2
    )
    other = body(("system", "Be kind."), ("user", "Good day"))
    assert prefix_of(first) == prefix_of(later) != prefix_of(other)


def test_a_long_system_prompt_alone_decides() -> None:
    long = "x" * PREFIX_BYTES
    one, two = body(("system", long), ("user", "a")), body(("system", long), ("user", "b"))
    assert prefix_of(one) == prefix_of(two)
    assert len(prefix_of(one)) == PREFIX_BYTES


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"prompt": "a"}, {"prompt": "b"}),
        ({"input": "a"}, {"input": "b"}),
        ({"instructions": "a", "input": "x"}, {"instructions": "b", "input": "x"}),
        ({"input": [{"role": "user", "a": 1}]}, {"input": [{"role": "user", "a": 2}]}),
    ],
)  # fmt: skip
def test_prompts_of_all_surfaces_are_read(one: dict[str, object], two: dict[str, object]) -> None:
    first, second = json.dumps(one).encode(), json.dumps(two).encode()
    assert prefix_of(first) != prefix_of(second)
    assert prefix_of(first) == prefix_of(json.dumps({**one, "temperature": 1}).encode())


@given(st.binary())
def test_any_bytes_have_a_prefix(some: bytes) -> None:
    assert len(prefix_of(some)) <= PREFIX_BYTES
