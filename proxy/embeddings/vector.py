"""One embedding in its two spellings: a list of numbers, and base64 of float32 (little endian).

Kept is base64 wherever no number loses anything by it, since it is a fifth of the size and what the
SDKs ask for; else the list, digit for digit. So numbers come back as the upstream said them: a list
gives the very doubles that were sent, base64 the very bits. Only a list of numbers that no float32
holds is rounded, to the nearest, where base64 is asked for.
"""

import base64
import binascii
import math
import sys
from array import array

import msgspec
from msgspec import Raw

_QUOTE = b'"'


def kept(spelled: Raw) -> Raw | None:
    """The form that is kept of a vector as an upstream spelled it. None when it is no vector: not
    of numbers, empty, or not finite."""
    if bytes(spelled).startswith(_QUOTE):
        numbers = _decoded(spelled)
        return spelled if numbers and math.isfinite(sum(numbers)) else None
    try:
        listed = _LIST.decode(spelled)
        narrow = array("f", listed)
    except (msgspec.MsgspecError, OverflowError):
        return None
    if not listed or not all(map(math.isfinite, narrow)):
        return None
    is_exact = narrow.tolist() == listed and all(type(number) is float for number in listed)
    return _encoded(narrow) if is_exact else spelled


def as_base64(vector: Raw) -> Raw:
    """A kept vector for a client that asked for base64."""
    return (
        vector if bytes(vector).startswith(_QUOTE) else _encoded(array("f", _LIST.decode(vector)))
    )


def as_floats(vector: Raw) -> Raw:
    """A kept vector for a client that asked for numbers."""
    if not bytes(vector).startswith(_QUOTE):
        return vector
    return Raw(msgspec.json.encode(_decoded(vector).tolist()))


def _decoded(spelled: Raw) -> "array[float]":
    """The numbers; empty when it is not base64 of float32."""
    numbers = array("f")
    try:
        numbers.frombytes(base64.b64decode(_TEXT.decode(spelled), validate=True))
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        return array("f")
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _encoded(numbers: "array[float]") -> Raw:
    if sys.byteorder == "big":
        numbers = array("f", numbers)
        numbers.byteswap()
    return Raw(_QUOTE + base64.b64encode(numbers.tobytes()) + _QUOTE)


_LIST = msgspec.json.Decoder(list[int | float])
_TEXT = msgspec.json.Decoder(str)
