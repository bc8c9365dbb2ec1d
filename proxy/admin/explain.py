"""Why a request gets the answer that it gets."""

from typing import Any

from litestar import Request, post
from litestar.di import NamedDependency
from msgspec import UNSET, UnsetType

from proxy.admin.office import Office
from proxy.admin.parameters import body_of
from proxy.call import Caller
from proxy.errors import ClientError
from proxy.explaining.asking import Asked, Told
from proxy.explaining.views import Comparison, Explanation
from proxy.observing.recollection import Remembered
from proxy.processes.gathering import Recollect


class ExplainBody(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /cache/explain`. With `other`: why the two do or do not share an answer."""

    other: Asked | UnsetType = UNSET


@post("/cache/explain", status_code=200)
async def explain(
    office: NamedDependency[Office], request: Request[Any, Any, Any]
) -> Explanation | Comparison:
    """What decides about a request, as if it came now; or about two. Nothing is served or changed.
    404 for an id that is not remembered, 409 for one of several clients' requests."""
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
    caller = office.asking().caller_of(asked)
    found = await _remembered(office, asked)
    if not _of(found, caller):
        found += await office.records.journal.recollect(asked.request_id, asked.tenant)
    fitting = _of(found, caller)
    if len(fitting) == 1:
        return Told(asked=asked, recollection=fitting[0].asked, seen=fitting[0].seen)
    raise _unknown(asked.request_id[:200], is_ambiguous=bool(fitting), is_foreign=bool(found))


def _unknown(name: str, *, is_ambiguous: bool, is_foreign: bool) -> ClientError:
    if is_ambiguous:
        message = (
            f"Several clients chose the id {name} for their requests. Whose is meant? Give its key"
            " beside the id, or its tenant where that has one key alone."
        )
        return ClientError(409, message, param="request_id", code="ambiguous_id")
    if is_foreign:
        message = f"The request {name} did not come with this key."
        return ClientError(404, message, param="headers", code="not_found")
    message = (
        f"No request {name} is remembered. The last ones are, and with"
        " `record: {bodies: true}` those of the request log, but none that said no-store."
    )
    return ClientError(404, message, param="request_id", code="not_found")


async def _remembered(office: Office, asked: Asked) -> tuple[Remembered, ...]:
    question = Recollect(request_id=asked.request_id, tenant=asked.tenant)
    return (await office.peers().ask(question)).remembered


def _of(found: tuple[Remembered, ...], caller: Caller | None) -> tuple[Remembered, ...]:
    return found if caller is None else tuple(one for one in found if one.asked.caller == caller)
