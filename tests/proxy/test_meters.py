"""Meters of one process and of several."""

import multiprocessing
from pathlib import Path

import pytest

from proxy.tenancy.meters import OwnMeters, SharedMeters

NOW = 1000.0


@pytest.fixture(params=["own", "shared"])
def meters(request, tmp_path):
    if request.param == "own":
        yield OwnMeters()
        return
    shared = SharedMeters(tmp_path / "meters")
    yield shared
    shared.close()


def test_what_was_put_is_there_and_the_rest_is_empty(meters):
    with meters.locked():
        meters.put("requests acme", NOW + 7, now=NOW)
        meters.put("tokens acme", NOW + 9, now=NOW)
        assert meters.get("requests acme", now=NOW) == NOW + 7
        assert meters.get("tokens acme", now=NOW) == NOW + 9
        assert meters.get("requests other", now=NOW) <= NOW
        meters.put("requests acme", NOW + 8, now=NOW)
        assert meters.get("requests acme", now=NOW) == NOW + 8


def test_many_names_pass_by_without_displacing_a_full_meter(meters):
    meters.put("full", NOW + 60, now=NOW)
    for number in range(50_000):
        meters.put(f"passing {number}", NOW - 1, now=NOW)
    assert meters.get("full", now=NOW) == NOW + 60


def test_what_is_past_is_forgotten():
    meters = OwnMeters()
    for number in range(10_000):
        meters.put(f"{number}", NOW + number, now=NOW + number)
    assert len(meters._empty_at) < 2048


def add(path: Path, times: int) -> None:
    meters = SharedMeters(path)
    for _ in range(times):
        with meters.locked():
            meters.put("one", meters.get("one", now=0.0) + 1, now=0.0)
    meters.close()


def test_no_process_overwrites_what_another_counts(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=add, args=(tmp_path / "meters", 500)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert SharedMeters(tmp_path / "meters").get("one", now=0.0) == 1500
