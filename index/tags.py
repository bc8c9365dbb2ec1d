"""Dependency tags: their grammar, how they are read from headers, and the implicit ones.

A tag is 1 to 256 bytes of visible ASCII without comma; upper and lower case differ. Whatever else a
value holds is percent-encoded on the way in, byte by byte in UTF-8. An encoded tag encodes to
itself, so a tag may be written in either form wherever tags are given.
"""

import hashlib
import re
from collections.abc import Iterable

from index.errors import InvalidTag

MAX_TAG_BYTES = 256
MAX_TAGS = 128
"""Explicit tags of one request, or of one upstream's answer."""

RESERVED = ("model:", "route:", "tenant:", "system:", "policy:", "key:")
"""Prefixes of the implicit tags; clients cannot use them, nor `*`."""

_EVERYTHING = "*"
_TAG = re.compile(r"[!-+\--~]{1,256}")
_FOREIGN = re.compile(rb"[^!-+\--~]")
_STRING = r'"((?:[ !#-\[\]-~]|\\["\\])*)"(?:;[^,"]*)?'
"""A String of RFC 9651; parameters are passed over."""
_GROUP = re.compile(_STRING)
_GROUPS = re.compile(rf"[ \t]*(?:{_STRING}[ \t]*(?:,[ \t]*{_STRING}[ \t]*)*)?")
_ESCAPE = re.compile(r"\\(.)")


def encode(value: str | bytes) -> str:
    """A valid tag for any text. InvalidTag when it is empty or too long once encoded."""
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    tag = _percent(raw)
    validate(tag)
    return tag


def validate(tag: str) -> None:
    """InvalidTag, with what is wrong, unless `tag` is in the grammar as it stands."""
    if _TAG.fullmatch(tag):
        return
    if not tag:
        raise InvalidTag("a tag is empty")
    if len(tag) > MAX_TAG_BYTES:
        raise InvalidTag(f"a tag has {len(tag)} bytes, more than {MAX_TAG_BYTES}: {tag[:40]!r}…")
    raise InvalidTag(f"{tag!r} is not a tag: visible ASCII without comma is allowed")


def parse(header: str | bytes) -> tuple[str, ...]:
    """The tags of a comma-separated header: `doc:42, kb:prices`. Empty members do not count."""
    return _members(header, b",")


def parse_surrogate_keys(header: str | bytes) -> tuple[str, ...]:
    """The tags of a `Surrogate-Key` header, which separates them by spaces."""
    return _members(header, None)


def parse_cache_groups(header: str | bytes) -> tuple[str, ...]:
    """The tags of a `Cache-Groups` header (RFC 9875: a List of Strings).

    A field that is not such a list is no list at all: InvalidTag.
    """
    text = header.decode("latin-1") if isinstance(header, bytes) else header
    if not _GROUPS.fullmatch(text):
        raise InvalidTag("Cache-Groups is not a list of strings (RFC 9875)")
    return tuple(encode(_ESCAPE.sub(r"\1", match[1])) for match in _GROUP.finditer(text))


def client_tags(values: Iterable[str | bytes]) -> tuple[str, ...]:
    """Tags that a client named, encoded, sorted, each once.

    InvalidTag for a reserved one, for `*`, and for more than 128.
    """
    tags = _collect(values)
    for tag in tags:
        if tag == _EVERYTHING or tag.startswith(RESERVED):
            raise InvalidTag(f"{tag!r} is reserved: such tags are set by the proxy itself")
    return tags


def upstream_tags(values: Iterable[str | bytes]) -> tuple[str, ...]:
    """Tags that an upstream or a rule of the config named, encoded, sorted, each once.

    Reserved ones are let through: they can only make a purge cover more. InvalidTag for more than
    128, and then the answer must not be stored: half its tags would be worse than no answer.
    """
    return _collect(values)


def union(*parts: Iterable[str]) -> tuple[str, ...]:
    """All the tags, sorted, each once: the form in which an entry holds them."""
    return tuple(sorted(set().union(*parts)))


def model_tag(model: str) -> str:
    """Implicit tag of the model that answered."""
    return _implicit("model:", model)


def route_tag(route: str) -> str:
    """Implicit tag of the route."""
    return _implicit("route:", route)


def tenant_tag(tenant: str) -> str:
    """Implicit tag of the tenant."""
    return _implicit("tenant:", tenant)


def policy_tag(policy: str) -> str:
    """Implicit tag of the cache policy."""
    return _implicit("policy:", policy)


def system_tag(system: str) -> str:
    """Implicit tag of a system prompt: its SHA-256, never its text."""
    return "system:" + hashlib.sha256(system.encode("utf-8", "surrogatepass")).hexdigest()


def key_tag(key: str) -> str:
    """The tag that every entry carries without naming it; purging it purges one key."""
    return _implicit("key:", key)


def _members(header: str | bytes, separator: bytes | None) -> tuple[str, ...]:
    raw = header.encode("utf-8", "surrogatepass") if isinstance(header, str) else header
    members = (member.strip(b" \t") for member in raw.split(separator))
    return tuple(encode(member) for member in members if member)


def _collect(values: Iterable[str | bytes]) -> tuple[str, ...]:
    tags = union(map(encode, values))
    if len(tags) > MAX_TAGS:
        raise InvalidTag(f"{len(tags)} tags, more than {MAX_TAGS}")
    return tags


def _percent(raw: bytes) -> str:
    return _FOREIGN.sub(lambda match: b"%%%02X" % match[0][0], raw).decode("ascii")


def _implicit(prefix: str, value: str) -> str:
    """Never refuses: what would be too long or empty is named by its digest."""
    raw = value.encode("utf-8", "surrogatepass")
    tag = prefix + _percent(raw)
    if _TAG.fullmatch(tag) and value:
        return tag
    return f"{prefix}sha256={hashlib.sha256(raw).hexdigest()}"
