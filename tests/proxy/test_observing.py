"""What the metrics say of a proxy on real sockets, of one process and of several."""

import asyncio
import json

import pytest
from misbehaving import serving
from prometheus_client.parser import text_string_to_metric_families
from proxyprocess import Process, serving_process
from running import CONFIG, Running, good, running
from test_supervisor import ask_anew, config_of, workers_of

PRICES = """
prices:
  "test-*": {input: 2, cached_input: 1, output: 10, currency: EUR}
"""
COST = (5 * 2 + 3 * 10) / 1e6
PAID = {"model": "test-1", "policy": "standard", "currency": "EUR"}


def priced(upstream: str) -> str:
    return PRICES + CONFIG.format(upstream=upstream, options="", policy="")


async def total(of: Running | Process, name: str, **labels: str) -> float:
    """The sum of all samples with these labels."""
    text = (await of.http.get(f"{of.admin_url}/metrics")).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


async def test_a_miss_is_paid_for_and_hits_save_what_it_cost(tmp_path):
    async with (
        serving(good) as upstream,
        running(
            PRICES + CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path
        ) as p,
    ):
        await p.ask()
        for stream in (False, True, True):
            await p.ask(stream=stream)
        assert await total(p, "rejoinder_money_spent_total", **PAID) == pytest.approx(COST)
        assert await total(p, "rejoinder_money_saved_total", **PAID) == pytest.approx(3 * COST)
        assert await total(p, "rejoinder_tokens_saved_total", direction="output") == 9.0
        assert await total(p, "rejoinder_phase_seconds_count", phase="lookup") == 4.0
        assert await total(p, "rejoinder_phase_seconds_count", phase="upstream") == 1.0
        assert await total(p, "rejoinder_store_entries") == 1.0
        assert await total(p, "rejoinder_flights") == 0.0


async def test_who_waits_for_anothers_answer_saves_its_tokens_once_they_are_known(tmp_path):
    go_on = asyncio.Event()

    async def slow(request, writer):
        await go_on.wait()
        await good(request, writer)

    async with (
        serving(slow) as upstream,
        running(
            PRICES + CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path
        ) as p,
    ):
        asking = [asyncio.create_task(p.ask()) for _ in range(3)]
        while len(p.proxy.listeners()) < 3:
            await asyncio.sleep(0.01)
        assert await total(p, "rejoinder_waiting_clients") == 3.0
        assert await total(p, "rejoinder_flights") == 1.0
        go_on.set()
        await asyncio.gather(*asking)
        assert await total(p, "rejoinder_money_spent_total") == pytest.approx(COST)
        assert await total(p, "rejoinder_money_saved_total") == pytest.approx(2 * COST)
        assert await total(p, "rejoinder_seconds_saved_total") == 0.0


async def test_an_entry_that_makes_room_is_counted(tmp_path):
    small = "store: {memory: 64KiB}\n"
    async with (
        serving(good) as upstream,
        running(small + CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        for number in range(40):
            await p.ask(f"Question {number}? " + "x" * 1000)
        assert await total(p, "rejoinder_evictions_total") > 0
        assert 0 < await total(p, "rejoinder_store_memory_bytes") <= 64 * 2**10


async def test_a_worker_that_dies_takes_nothing_with_it_that_was_ever_shown(tmp_path):
    async with serving(good) as upstream:
        text = PRICES + config_of(upstream.url, tmp_path, workers=2)
        async with serving_process(text, tmp_path) as process:
            for _ in range(12):
                assert (await ask_anew(process, "What is a cache?")).status_code == 200
            hits = {"outcome": "exact"}
            before = await total(process, "rejoinder_requests_total", **hits)
            assert before == 11.0
            assert await total(process, "rejoinder_money_saved_total") == pytest.approx(11 * COST)
            assert await total(process, "rejoinder_store_entries") == 1.0, "told by one of them"
            dying, *_ = workers_of(process)
            dying.kill()
            dying.wait(30)
            while len(workers_of(process)) < 2:
                await asyncio.sleep(0.05)
            for _ in range(6):
                await ask_anew(process, "What is a cache?")
            assert await total(process, "rejoinder_requests_total", **hits) == 17.0
            count = await total(process, "rejoinder_first_byte_seconds_count", **hits)
            assert count == 17.0


async def test_a_reload_brings_other_prices_and_another_log(tmp_path):
    def text(price: int, log: str, upstream: str) -> str:
        fixed = CONFIG.format(upstream=upstream, options="", policy="")
        prices = f"prices: {{'test-*': {{output: {price}}}}}\n"
        return f"{prices}access_log: {tmp_path / log}\n{fixed}"

    async with (
        serving(good) as upstream,
        serving_process(text(1, "one", upstream.url), tmp_path) as process,
    ):
        for _ in range(2):
            await process.ask()
        process.path.write_text(text(100, "two", upstream.url))
        reloaded = await process.http.post(f"{process.admin_url}/reload")
        assert reloaded.json()["ok"], reloaded.text
        await process.ask()
        saved = await total(process, "rejoinder_money_saved_total")
        assert saved == pytest.approx((3 * 1 + 3 * 100) / 1e6)
    outcomes = {
        log: [json.loads(line)["outcome"] for line in (tmp_path / log).read_text().splitlines()]
        for log in ("one", "two")
    }
    assert outcomes == {"one": ["miss", "exact"], "two": ["exact"]}
