"""Query strings as they are written down: some clients put their keys there. Pure."""

import re
from urllib.parse import unquote_plus

_SECRET = re.compile(r"key|token|secret|sig(nature)?|password|passwd|pwd|auth|credential", re.I)
_MASK = "***"


def masked(query: str) -> str:
    """The same names, without the values of those that sound like a secret's."""
    return "&".join(map(_told, query.split("&")))


def _told(pair: str) -> str:
    name, equals, value = pair.partition("=")
    is_secret = bool(value) and _SECRET.search(unquote_plus(name)) is not None
    return f"{name}{equals}{_MASK}" if is_secret else pair
