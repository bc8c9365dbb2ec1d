"""Tags and keys as the people who run the proxy write them."""

from index import tags as tag_grammar
from index.errors import InvalidTag
from proxy.errors import ClientError

_HEX = frozenset("0123456789abcdef")


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
