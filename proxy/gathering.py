"""What is asked of the records of all workers: each gives its own part, the parent puts them
together."""

from collections.abc import Sequence
from typing import assert_never

from proxy.control import (
    Answer,
    Forget,
    Forgotten,
    OfRecords,
    Part,
    Recall,
    Recalled,
    Recollect,
    Recollected,
)
from proxy.journal.records import Records
from proxy.recent import newest_of


async def own_part(question: OfRecords, records: Records) -> Part:
    """Of one worker."""
    match question:
        case Recall(limit=limit):
            return Recalled(requests=records.recent.latest(limit))
        case Recollect(request_id=request_id, tenant=tenant):
            return Recollected(remembered=records.recent.recollect(request_id, tenant=tenant))
        case Forget(erasure=erasure):
            return Forgotten(num_dropped=await records.forget(erasure))
        case _:
            assert_never(question)


def together(question: OfRecords, parts: Sequence[Answer]) -> Part:
    """Of all that answered."""
    match question:
        case Recall(limit=limit):
            lists = [part.requests for part in parts if isinstance(part, Recalled)]
            return Recalled(requests=newest_of(lists, limit=limit))
        case Recollect():
            told = [part.remembered for part in parts if isinstance(part, Recollected)]
            known = [one for one in told if one is not None]
            if len({one.seen.tenant for one in known}) > 1:
                return Recollected(remembered=None)
            return Recollected(remembered=max(known, key=lambda one: one.seen.at, default=None))
        case Forget():
            dropped = [part.num_dropped for part in parts if isinstance(part, Forgotten)]
            return Forgotten(num_dropped=sum(dropped))
        case _:
            assert_never(question)
