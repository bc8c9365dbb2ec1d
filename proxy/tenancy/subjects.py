"""Whom a request is about, as far as it names its user: by digests that do not tell the name.

The digest is keyed with the store's secret, so that nobody can try names against it.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

_DOMAIN = b"rejoinder subject 1\0"
_DIGITS = 32


def subjects_of(fields: Mapping[str, Any], *, secret: bytes) -> tuple[str, ...]:
    """Of `user`, `safety_identifier` and `metadata.user_id`; each once, mostly none."""
    metadata = fields.get("metadata")
    named = [fields.get("user"), fields.get("safety_identifier")]
    if isinstance(metadata, dict):
        named.append(metadata.get("user_id"))
    names = dict.fromkeys(name for name in named if isinstance(name, str) and name)
    return tuple(subject_of(name, secret=secret) for name in names)


def subject_of(name: str, *, secret: bytes) -> str:
    """32 hex digits."""
    raw = _DOMAIN + name.encode("utf-8", "surrogatepass")
    return hmac.new(secret, raw, hashlib.sha256).hexdigest()[:_DIGITS]
