"""The lines of the request log. Pure."""

from collections.abc import Collection

import msgspec
from msgspec import UNSET, Raw, UnsetType

from proxy.call import Caller, Directives
from proxy.journal.erasure import Erasure, without_words
from proxy.journal.masking import masked
from proxy.observing.recollection import Recollection, Remembered, recollection_of
from proxy.observing.seen import Seen
from proxy.port.passage import Passage

FORMAT_VERSION = 1
"""Of a line. One of another version is passed over."""


class Line(Seen, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a request, and with `bodies` its words: then it can be asked again, which is
    how `rejoinder warm` reads it."""

    v: int
    path: str = ""
    query: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    credential_id: str = ""
    """A digest, of use only beside the credential itself: who shares answers with whom."""
    directives: Directives | UnsetType = UNSET
    request: Raw | UnsetType = UNSET


def write_line(passage: Passage, *, bodies: bool, gone: Collection[str] = ()) -> bytes:
    """A line with its end, of a passage to a cached surface that has ended. `gone`: keys of erased
    answers, whose questions are left out."""
    return _ENCODER.encode(line_of(passage, bodies=bodies, gone=gone)) + b"\n"


def line_of(passage: Passage, *, bodies: bool, gone: Collection[str] = ()) -> Line:
    """See `write_line`."""
    seen = without_words(passage.seen, gone)
    question = passage.question
    line = Line(**{name: getattr(seen, name) for name in Seen.__struct_fields__}, v=FORMAT_VERSION)
    if not bodies or question is None or question.call.directives.no_store:
        # RFC 9111, section 5.2.1.5: nothing of a request that says no-store is stored.
        near = tuple(msgspec.structs.replace(one, prompt="") for one in line.near)
        return msgspec.structs.replace(line, near=near)
    asked = recollection_of(question)
    return msgspec.structs.replace(
        line,
        path=asked.path,
        query=masked(asked.query),
        headers=asked.headers,
        credential_id=asked.caller.credential_id,
        directives=asked.directives,
        request=asked.request,
    )


def read_line(text: bytes) -> Line | None:
    """None for what is no line of ours, or of another version."""
    try:
        line = _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return line if line.v == FORMAT_VERSION else None


def erased(text: bytes, erasure: Erasure) -> bytes | None:
    """What is left of a line, without its end; None: nothing."""
    line = read_line(text)
    if line is None or erasure.covers(line):
        return None  # who knows whose words are in half a line
    left = without_words(line, erasure.keys)
    return text if left is line else _ENCODER.encode(left)


def remembered_of(line: Line) -> Remembered | None:
    """None where its words were not kept."""
    if isinstance(line.request, UnsetType) or isinstance(line.directives, UnsetType):
        return None
    asked = Recollection(
        request_id=line.request_id,
        received_at=line.at,
        path=line.path,
        query=line.query,
        headers=line.headers,
        caller=Caller(tenant=line.tenant, credential_id=line.credential_id),
        directives=line.directives,
        request=line.request,
    )
    fields = {name: getattr(line, name) for name in Seen.__struct_fields__}
    return Remembered(seen=Seen(**fields), asked=asked)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Line)
