"""Asking an upstream for usage at the end of its stream, by an edit of the raw body.

`stream_options.include_usage` stands in the body of chat and legacy completions; every other byte
of the body stays.
"""

from typing import Any

import msgspec

ASKED_PATHS = frozenset({"/chat/completions", "/completions"})

_SPLICE = b',"stream_options":{"include_usage":true}}'


def with_usage(body: bytes) -> bytes:
    """Ask, whatever else `stream_options` says. The same object when it asks already."""
    end = body.rfind(b"}")
    if b'"stream_options"' not in body and end > 0:
        return body[:end] + _SPLICE
    members = _MEMBERS.decode(body)
    options = _OPTIONS.decode(members.get("stream_options", b"null")) or {}
    if options.get("include_usage") is True:
        return body
    return _with_options(members, {**options, "include_usage": True})


def without_usage(body: bytes) -> bytes:
    """Don't ask. The same object when it does not."""
    if b'"stream_options"' not in body:
        return body
    members = _MEMBERS.decode(body)
    options = _OPTIONS.decode(members.get("stream_options", b"null")) or {}
    if "include_usage" not in options:
        return body
    return _with_options(members, {k: v for k, v in options.items() if k != "include_usage"})


def refuses_usage(error_body: bytes) -> bool:
    """The text of a 400 or 422 names the option."""
    return b"stream_options" in error_body or b"include_usage" in error_body


def _with_options(members: dict[str, msgspec.Raw], options: dict[str, Any]) -> bytes:
    kept = {name: raw for name, raw in members.items() if name != "stream_options"}
    if options:
        kept["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
    return msgspec.json.encode(kept)


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OPTIONS = msgspec.json.Decoder(dict[str, Any] | None)
