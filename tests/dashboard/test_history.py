"""A day of samples, in a process and in a file of several."""

import asyncio

import pytest

from proxy.dashboard.history import OwnHistory, SharedHistory, keep
from proxy.dashboard.sample import Buckets, Sample


def sample(at: float) -> Sample:
    buckets = Buckets(bounds_s=(0.1,), counts=(1, 2))
    return Sample(at=at, requests={"exact": 2}, cached=buckets, money_saved={"USD": 0.5})


@pytest.fixture(params=["own", "shared"])
def history(request, tmp_path):
    if request.param == "own":
        return OwnHistory(max_samples=3)
    return SharedHistory(tmp_path / "history.jsonl", max_samples=3)


def test_the_oldest_samples_are_forgotten(history):
    assert history.all() == ()
    for at in range(20):
        history.add(sample(float(at)))
        assert [one.at for one in history.all()] == [float(n) for n in range(at + 1)][-3:]
    assert history.all()[-1] == sample(19.0)


def test_the_file_stays_bounded(tmp_path):
    path = tmp_path / "history.jsonl"
    history = SharedHistory(path, max_samples=3)
    for at in range(50):
        history.add(sample(float(at)))
        assert path.read_bytes().count(b"\n") <= 6


def test_a_worker_that_starts_again_goes_on_with_the_file(tmp_path):
    path = tmp_path / "history.jsonl"
    SharedHistory(path).add(sample(1.0))
    again = SharedHistory(path)
    again.add(sample(2.0))
    assert [one.at for one in SharedHistory(path).all()] == [1.0, 2.0]


def test_a_line_that_is_being_written_is_left_for_later(tmp_path):
    path = tmp_path / "history.jsonl"
    history = SharedHistory(path)
    history.add(sample(1.0))
    with path.open("ab") as file:
        file.write(b'{"at": 2')
    assert [one.at for one in history.all()] == [1.0]


async def test_samples_are_of_full_minutes(monkeypatch):
    now = [119.5]
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError
        now[0] += seconds + 0.25  # woken a little late

    async def taken(at: float) -> Sample:
        return sample(at)

    monkeypatch.setattr("proxy.dashboard.history.asyncio.sleep", sleep)
    history = OwnHistory()
    with pytest.raises(asyncio.CancelledError):
        await keep(history, taken, clock=lambda: now[0])
    assert [one.at for one in history.all()] == [119.5, 120.0, 180.0]
    assert slept == [0.5, 59.75, 59.75]
