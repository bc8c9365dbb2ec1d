"""The lines of an export: JSON, one stored answer a line, with marks between them. Pure.

An export goes back into the store that it came from, or into one with the same secret (a copy, a
replica). Keys are made with the secret and of more than an entry holds (headers, credential,
upstream), so they are carried as they are and cannot be made anew for a store with another secret.
The secret itself is never written: a line names it by a digest, and is sealed with it, so that a
line which was altered, or put together of two, is recognised.
"""

import hashlib
import hmac

import msgspec
from msgspec import UNSET, Raw, UnsetType

from index import tags
from index.entry import Entry
from index.errors import InvalidTag
from proxy.answer import payload as payloads
from proxy.answer.replay import Unreplayable, plain

FORMAT_VERSION = 1
"""Of the line. A line of another version is refused."""

MAX_LINE_BYTES = 64 * 2**20

_STORE = b"rejoinder store 1\0"
_SEAL = b"rejoinder export 1\0"


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry (bytes are base64 in it), or a mark: what is before it is whole."""

    format: int
    store: str = ""
    """Digest of the secret of the store; see `name_of`."""
    seal: str = ""
    entry: Entry | UnsetType = UNSET
    request: Raw | UnsetType = UNSET
    """For readers only: the canonical request. Not read back."""
    answer: Raw | UnsetType = UNSET
    """For readers only: the answer in its plain form. Not read back."""
    cursor: str | UnsetType | None = UNSET
    """Of a mark: where the export goes on; null at its end."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """All lines up to here have come; `cursor` continues, None at the end."""

    cursor: str | None


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """Why a line is refused."""

    reason: str


def name_of(secret: bytes) -> str:
    """A name of the store that tells nothing of its secret, which has 32 random bytes."""
    return hashlib.sha256(_STORE + secret).hexdigest()[:32]


def write_entry(entry: Entry, *, secret: bytes, readable: bool) -> bytes:
    """A line with its end. `readable` adds request and answer for people and other programs."""
    line = Line(
        format=FORMAT_VERSION, store=name_of(secret), seal=_seal(entry, secret), entry=entry
    )
    if readable:
        answer = _readable(entry.payload)
        line = msgspec.structs.replace(line, request=Raw(entry.canonical), answer=answer)
    return msgspec.json.encode(line) + b"\n"


def write_mark(cursor: str | None) -> bytes:
    """A line with its end."""
    return msgspec.json.encode(Line(format=FORMAT_VERSION, cursor=cursor)) + b"\n"


def read(text: bytes, *, secret: bytes) -> Entry | Mark | Unreadable:
    """What a line says, checked for all that can be checked without the store's counters."""
    line = _decoded(text)
    if isinstance(line, Unreadable):
        return line
    entry = line.entry
    if isinstance(entry, UnsetType):
        if isinstance(line.cursor, UnsetType):
            return Unreadable(reason="neither an entry nor a mark")
        return Mark(cursor=line.cursor)
    if line.store != name_of(secret):
        return Unreadable(
            reason="it comes from a store with another secret: its key cannot be found here"
        )
    if not hmac.compare_digest(line.seal.encode(), _seal(entry, secret).encode()):
        return Unreadable(reason="it was altered after its export")
    reason = _flaw(entry)
    return Unreadable(reason=reason) if reason else entry


def read_mark(text: bytes) -> Mark | None:
    """The mark of a line; None where it is something else, or only half of a line."""
    line = _decoded(text)
    if isinstance(line, Unreadable) or isinstance(line.cursor, UnsetType):
        return None
    return Mark(cursor=line.cursor)


class _Version(msgspec.Struct):
    format: int


def _decoded(text: bytes) -> Line | Unreadable:
    try:
        version = _VERSIONS.decode(text).format
        if version != FORMAT_VERSION:
            return Unreadable(reason=f"it has format {version}, not {FORMAT_VERSION}")
        return _LINES.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Unreadable(reason=f"not a line of an export: {error}")


def _flaw(entry: Entry) -> str:
    if payloads.decode(entry.payload) is None:
        return "its answer is not whole, or of another version"
    try:
        for tag in entry.tags:
            tags.validate(tag)
    except InvalidTag as error:
        return str(error)
    if entry.tags != tags.union(entry.tags):
        return "its tags are not sorted"
    implicit = (
        tags.tenant_tag(entry.tenant),
        tags.policy_tag(entry.policy),
        tags.model_tag(entry.model),
    )
    # Without them a purge of the tenant, the policy or the model would pass the entry by.
    lacking = set(implicit).difference(entry.tags)
    return f"it lacks the tag {min(lacking)}" if lacking else ""


def _seal(entry: Entry, secret: bytes) -> str:
    return hmac.new(secret, _SEAL + msgspec.json.encode(entry), hashlib.sha256).hexdigest()


def _readable(stored: bytes) -> Raw | UnsetType:
    payload = payloads.decode(stored)
    if payload is None:
        return UNSET
    try:
        return Raw(msgspec.json.format(plain(payload), indent=-1))
    except (Unreplayable, msgspec.MsgspecError):
        return UNSET


_VERSIONS = msgspec.json.Decoder(_Version)
_LINES = msgspec.json.Decoder(Line)
