"""What users say of answers that were given by meaning."""

from typing import Any

import msgspec
from litestar import Request, post
from litestar.di import NamedDependency

from proxy.admin.deeds import audited
from proxy.admin.office import Office
from proxy.admin.parameters import body_of
from proxy.auditing.reports import Verdict
from proxy.errors import ClientError
from proxy.processes.gathering import Holds, Report


class FeedbackBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /cache/feedback`. `request_id`: as the answer's `x-request-id` says."""

    request_id: str
    verdict: Verdict


class FeedbackAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted."""

    request_id: str
    verdict: Verdict


@post("/cache/feedback", status_code=200)
async def feedback(
    office: NamedDependency[Office], request: Request[Any, Any, Any]
) -> FeedbackAnswer:
    """Say that an answer given by meaning was right or wrong. After `wrong` its question never
    again gets the answer to the other one. 404 for an id that no worker has lately given such an
    answer under, that one has given several under, or that was reported on before."""
    body = await body_of(request, FeedbackBody, expected="feedback")
    return await audited(office.deeds, request, "feedback", body, _count(office, body))


async def _count(office: Office, body: FeedbackBody) -> FeedbackAnswer:
    held = await office.peers().ask(Holds(request_id=body.request_id))
    if held.num_missing:
        raise ClientError(503, "A worker does not answer: ask again.", kind="server_error")
    if not await _known(office, body, held.by):
        message = f"No answer was lately given by meaning under request id {body.request_id[:200]}."
        raise ClientError(404, message, param="request_id", code="not_found")
    return FeedbackAnswer(request_id=body.request_id, verdict=body.verdict)


async def _known(office: Office, body: FeedbackBody, by: tuple[int, ...]) -> bool:
    # With two of them nobody can tell which answer is meant: clients choose their ids.
    if len(by) != 1:
        return False
    question = Report(request_id=body.request_id, verdict=body.verdict, index=by[0])
    return (await office.peers().ask(question)).known
