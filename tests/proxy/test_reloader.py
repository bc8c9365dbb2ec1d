"""When a config is read again, whatever the machine and the parts have against it."""

import asyncio
import contextlib
import os
import signal

from proxy.processes.control import Stuck, Unanswered
from proxy.processes.reloader import Reloader

DEADLINE_S = 60
BEFORE = 'upstreams: {main: {base_url: "http://127.0.0.1:9/v1"}}\nroutes: [{to: main}]\n'
AFTER = BEFORE + "# another\n"


class Applied:
    """Texts that came into force; the first `num_failures` times it fails."""

    def __init__(self, *, num_failures: int = 0, fault: Exception | None = None) -> None:
        self.texts = []
        self._num_failures = num_failures
        self._fault = fault or OSError(12, "Cannot allocate memory")

    async def __call__(self, text, _loaded):
        self.texts.append(text)
        if len(self.texts) <= self._num_failures:
            raise self._fault
        return ()


@contextlib.asynccontextmanager
async def following(folder, applied):
    path = folder / "serve.yaml"
    path.write_text(BEFORE)
    reports = []
    reloader = Reloader(
        path,
        BEFORE,
        apply=applied,
        clock=lambda: 1.0,
        unasked=lambda cause, report: reports.append((cause, report)),
    )
    task = asyncio.create_task(reloader.follow())
    await asyncio.sleep(0)  # from now on signals are for it
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield path, reports
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_file_that_is_still_being_written_is_not_read_yet(tmp_path, monkeypatch):
    beginnings = iter([AFTER[:end] + "[" for end in range(len(BEFORE), len(AFTER))])
    monkeypatch.setattr("proxy.processes.reloader._LOOK_EVERY_S", 0.01)
    monkeypatch.setattr("proxy.processes.reloader._SETTLED_AFTER_S", 0.01)
    monkeypatch.setattr("proxy.processes.reloader.text_of", lambda _: next(beginnings, AFTER))
    applied = Applied()
    async with following(tmp_path, applied) as (_, reports):
        while not reports:
            await asyncio.sleep(0.01)
    assert applied.texts == [AFTER]


async def test_a_file_that_is_put_in_the_place_of_another_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("proxy.processes.reloader._LOOK_EVERY_S", 0.01)
    applied = Applied()
    async with following(tmp_path, applied) as (path, reports):
        path.unlink()
        await asyncio.sleep(0.05)
        (tmp_path / "new").write_text(AFTER)
        (tmp_path / "new").rename(path)
        while not reports:
            await asyncio.sleep(0.01)
    assert [(cause, report.ok) for cause, report in reports] == [("a change of the file", True)]


async def test_a_reload_that_fails_is_reported_and_the_next_signal_is_heard(tmp_path):
    async with following(tmp_path, Applied(num_failures=1)) as (_, reports):
        for number in (1, 2):
            os.kill(os.getpid(), signal.SIGHUP)
            while len(reports) < number:
                await asyncio.sleep(0.01)
    assert [(cause, report.ok) for cause, report in reports] == [
        ("SIGHUP", False),
        ("SIGHUP", True),
    ]
    assert "Cannot allocate memory" in reports[0][1].problems[0]
    assert reports[0][1].code == "reload_failed"


async def test_a_change_that_met_a_stuck_worker_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr("proxy.processes.reloader._LOOK_EVERY_S", 0.05)
    applied = Applied(num_failures=2, fault=Stuck("worker 1 does not answer"))
    async with following(tmp_path, applied) as (path, reports):
        path.write_text(AFTER)
        while not (reports and reports[-1][1].ok):
            await asyncio.sleep(0.01)
    assert applied.texts == [AFTER] * 3
    assert [report.code for _, report in reports] == ["worker_stuck", "worker_stuck", None]


async def test_a_change_that_met_a_failing_worker_is_tried_again_and_does_not_call_it_stuck(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("proxy.processes.reloader._LOOK_EVERY_S", 0.05)
    applied = Applied(num_failures=1, fault=Unanswered("worker 1: OSError"))
    async with following(tmp_path, applied) as (path, reports):
        path.write_text(AFTER)
        while not (reports and reports[-1][1].ok):
            await asyncio.sleep(0.01)
    assert [report.code for _, report in reports] == ["reload_failed", None]
