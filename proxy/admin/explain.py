"""Why a request gets the answer that it gets."""

from typing import Any

from litestar import Request, post
from litestar.di import NamedDependency
from msgspec import UNSET, UnsetType

from proxy.admin.office import Office
from proxy.admin.parameters import body_of
from proxy.errors import ClientError
from proxy.explaining.asking import Asked, Told
from proxy.explaining.views import Comparison, Explanation
from proxy.processes.gathering import Recollect


class ExplainBody(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /cache/explain`. With `other`: why the two do or do not share an answer."""

    other: Asked | UnsetType = UNSET


@post("/cache/explain", status_code=200)
async def explain(
    office: NamedDependency[Office], request: Request[Any, Any, Any]
) -> Explanation | Comparison:
    """What decides about a request, as if it came now; or about two. Nothing is served or changed.
    404 for an id that is not remembered."""
    body = await body_of(request, ExplainBody, expected="a question for explain")
    told = await _told(office, body)
    if isinstance(body.other, UnsetType):
        return await office.asking().explain(told)
    return await office.asking().compare(told, await _told(office, body.other))


async def _told(office: Office, asked: Asked) -> Told:
    if not asked.request_id:
        return Told(asked=asked)
    if not isinstance(asked.request, UnsetType):
        raise ClientError(400, "Give either a request or a request_id.", param="request_id")
    request_id, tenant = asked.request_id, asked.tenant
    question = Recollect(request_id=request_id, tenant=tenant)
    remembered = (await office.peers().ask(question)).remembered
    if remembered is None:
        remembered = await office.records.journal.recollect(request_id, tenant)
    if remembered is None:
        message = (
            f"No request {asked.request_id[:200]} is remembered. The last ones are, and with"
            " `record: {bodies: true}` those of the request log, but none that said no-store."
        )
        raise ClientError(404, message, param="request_id", code="not_found")
    return Told(asked=asked, recollection=remembered.asked, seen=remembered.seen)
