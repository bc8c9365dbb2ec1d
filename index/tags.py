"""Dependency tags: their grammar, how they are read from headers, and the implicit ones.

A tag is 1 to 256 bytes of visible ASCII without comma; upper and lower case differ. Whatever else a
value holds is percent-encoded on the way in, byte by byte in UTF-8, and `%c3` is written `%C3`
(RFC 3986, section 6.2.2.1). An encoded tag encodes to itself, so a tag may be written in either
form wherever tags are given.
"""

import hashlib
import re
from collections.abc import Iterable

from index.errors import InvalidTag

MAX_TAG_BYTES = 256
MAX_TAGS = 128
"""Explicit tags of one request, or of one upstream's answer."""

RESERVED = ("model:", "route:", "tenant:", "system:", "policy:", "key:", "subject:")
"""Prefixes of the implicit tags; clients cannot use them, nor `*`."""

_EVERYTHING = "*"
_TAG = re.compile(r"[!-+\--~]{1,256}")
_FOREIGN = re.compile(rb"[^!-+\--~]")
_PERCENT = re.compile(rb"%[0-9A-Fa-f]{2}")
_STRING = r'"((?:[ !#-\[\]-~]|\\["\\])*)"(?:;[^,"]*)?'
"""A String of RFC 9651; parameters are passed over."""
_GROUP = re.compile(_STRING)
_GROUPS = re.compile(rf"[ \t]*(?:{_STRING}[ \t]*(?:,[ \t]*{_STRING}[ \t]*)*)?")
_ESCAPE = re.compile(r"\\(.)")


def encode(value: str | bytes) -> str:
    """A valid tag for any text; bytes are read by `text_of`. InvalidTag when it is empty or too
    long once encoded."""
    tag = _percent(value if isinstance(value, str) else text_of(value))
    validate(tag)
    return tag


def text_of(raw: bytes) -> str:
    """The text of a header's bytes: UTF-8, else Latin-1, in which many servers write headers. The
    same words name the same tag either way."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


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


def subject_tag(digest: str) -> str:
    """Implicit tag of a user whom the request names: a digest, never the name."""
    return _implicit("subject:", digest)


def key_tag(key: str) -> str:
    """The tag that every entry carries without naming it; purging it purges one key."""
    return _implicit("key:", key)


def _members(header: str | bytes, separator: bytes | None) -> tuple[str, ...]:
    """Each member is read by itself: one header may come from several servers."""
    if isinstance(header, str):
        raw = header.encode("utf-8", "surrogatepass")
        members = (member.strip(b" \t") for member in raw.split(separator))
        return tuple(encode(m.decode("utf-8", "surrogatepass")) for m in members if m)
    members = (member.strip(b" \t") for member in header.split(separator))
    return tuple(encode(member) for member in members if member)


def _collect(values: Iterable[str | bytes]) -> tuple[str, ...]:
    tags = union(map(encode, values))
    if len(tags) > MAX_TAGS:
        raise InvalidTag(f"{len(tags)} tags, more than {MAX_TAGS}")
    return tags


def _percent(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    visible = _FOREIGN.sub(lambda match: b"%%%02X" % match[0][0], raw)
    return _PERCENT.sub(lambda match: match[0].upper(), visible).decode("ascii")


def _implicit(prefix: str, value: str) -> str:
    """Never refuses: what would be too long or empty is named by its digest."""
    tag = prefix + _percent(value)
    if _TAG.fullmatch(tag) and value:
        return tag
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{prefix}sha256={digest}"
