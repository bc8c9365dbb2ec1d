"""The response header `Server-Timing`."""

import re

from misbehaving import serving
from running import CONFIG, good, running

from proxy.observing.timing import Leg, Phase, Timing

_ENTRY = re.compile(r"(\w+);dur=(\d+\.\d{3})")


def phases(answer) -> list[str]:
    header = answer.headers["server-timing"]
    assert re.fullmatch(rf"{_ENTRY.pattern}(, {_ENTRY.pattern})*", header)
    return [name for name, _ in _ENTRY.findall(header)]


async def test_an_answer_says_where_its_time_went(tmp_path):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        assert phases(await p.ask()) == ["receive", "lookup", "upstream"]
        assert phases(await p.ask()) == ["receive", "lookup"]
        assert phases(await p.ask(model="uncached")) == ["receive", "upstream"]


async def test_who_hides_outcomes_hides_the_times_that_tell_them(tmp_path):
    policy = ", hide_outcome: true"
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=policy), tmp_path) as p,
    ):
        assert "server-timing" not in (await p.ask()).headers


async def test_the_header_can_be_left_out(tmp_path):
    text = "server_timing: false\n" + CONFIG
    async with (
        serving(good) as upstream,
        running(text.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        assert "server-timing" not in (await p.ask()).headers


def test_blocks_that_overlap_count_once():
    timing = Timing()
    with timing.phase("lookup"), timing.phase("lookup"):
        pass
    with timing.phase("embed"):
        pass
    assert [one.name for one in timing.phases] == ["lookup", "embed"]


def test_upstream_time_runs_from_the_first_attempt_to_the_last_answer():
    timing = Timing()
    timing.phases.append(Phase("receive", 0.0, 0.25))
    timing.legs = [
        Leg(upstream="u", server="s", path="/", model="m", began_s=began_s, answered_s=answered_s)
        for began_s, answered_s in ((1.0, 1.5), (2.0, 4.0), (5.0, None))
    ]
    assert timing.spent_s() == {"receive": 0.25, "upstream": 3.0}
