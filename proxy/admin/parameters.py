"""Tags and keys as the people who run the proxy write them."""

from typing import Any, TypeVar

import msgspec
from litestar import Request

from index import tags as tag_grammar
from index.errors import InvalidTag
from proxy.errors import ClientError

T = TypeVar("T")

_HEX = frozenset("0123456789abcdef")


async def body_of(request: Request[Any, Any, Any], kind: type[T], *, expected: str) -> T:
    """Its JSON. `expected`: what it is not where it is none. Raises ClientError."""
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ClientError(400, f"Not {expected}: {error}.") from None
    except RecursionError:
        raise ClientError(400, f"Not {expected}: it is nested too deeply.") from None


def tag_of(tag: str) -> str:
    """In the form that is stored. Raises ClientError."""
    try:
        return tag_grammar.encode(tag)
    except InvalidTag as error:
        raise ClientError(400, str(error), param="tags") from None


def key_of(key: str) -> str:
    """Raises ClientError where it is none."""
    if len(key) != 64 or not _HEX.issuperset(key):
        raise ClientError(400, f"{key[:80]!r} is not a key: 64 hex digits.", param="keys")
    return key
