"""What all processes tell, put together."""

from types import SimpleNamespace

import pytest

from proxy.auditing.reports import Reports
from proxy.call import Caller
from proxy.journal.erasure import Erasure
from proxy.processes.gathering import (
    Forget,
    Forgotten,
    Held,
    Holds,
    Process,
    Recollect,
    Recollected,
    Report,
    Reported,
)


class Erased:
    """Records that tell what they were asked for."""

    def __init__(self):
        self.done = []

    async def forget(self, erasure):
        self.done.append("forget")
        return 2

    async def erase(self, erasure):
        self.done.append("erase")
        return 3


class Verdicts:
    """Reports that know one id."""

    def __init__(self, known):
        self._known = known
        self.taken = []

    def holds(self, request_id):
        return request_id == self._known

    async def take(self, request_id, verdict):
        self.taken.append((request_id, verdict))
        return self.holds(request_id)


def process(*, index=0, reports=None, records=None, now=0.0):
    return Process(
        index=index,
        counts=None,
        reports=reports or Reports(ledger=None, metrics=None),
        records=records,
        clock=lambda: now,
    )


async def gather(question, processes):
    return question.join([await question.own(one) for one in processes])


async def test_a_verdict_goes_to_the_one_process_that_gave_the_answer():
    verdicts = [Verdicts("other"), Verdicts("r1"), Verdicts("other")]
    processes = [process(index=n, reports=one) for n, one in enumerate(verdicts)]
    held = await gather(Holds(request_id="r1"), processes)
    assert held == Held(by=(1,))
    told = await gather(Report(request_id="r1", verdict="wrong", index=1), processes)
    assert told == Reported(known=True)
    assert [one.taken for one in verdicts] == [[], [("r1", "wrong")], []]


@pytest.mark.parametrize(("now", "done"), [(4.0, ["forget"]), (6.0, ["forget", "erase"])])
async def test_who_forgets_late_rewrites_the_log_itself(now, done):
    records = Erased()
    question = Forget(erasure=Erasure(tenant="acme"), until=5.0)
    assert await gather(question, [process(records=records, now=now)]) == Forgotten(num_dropped=2)
    assert records.done == done


def remembered(tenant, at):
    caller = Caller(tenant=tenant, credential_id="")
    return SimpleNamespace(seen=SimpleNamespace(at=at), asked=SimpleNamespace(caller=caller))


def test_of_one_id_the_latest_request_of_each_caller_is_told():
    question = Recollect(request_id="r1", tenant=None)
    first, foreign, last = remembered("a", 1.0), remembered("b", 2.0), remembered("a", 3.0)
    parts = [Recollected(remembered=those) for those in ((last,), (), (first, foreign))]
    assert set(map(id, question.join(parts).remembered)) == {id(last), id(foreign)}
