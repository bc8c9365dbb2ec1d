"""JSON of a request as a Struct; what does not fit is a 400 that names the field."""

import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from proxy.errors import ClientError

_MISSING = re.compile(r"missing required field `(\w+)`")
_PATH = re.compile(r" - at (?:`key` in )?`\$\.?(.*)`$")

Kind = TypeVar("Kind")


def decode(body: bytes, kind: type[Kind]) -> Kind:
    """Raises ClientError (400)."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _client_error(error) from error
    except msgspec.DecodeError as error:
        raise ClientError(400, f"The body is not valid JSON: {error}") from error


def convert(value: Mapping[str, Any], kind: type[Kind], *, at: str) -> Kind:
    """A part of a body, which stands at `at` there. Raises ClientError (400)."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _client_error(error, at=at) from error


def refuse(message: str, param: str) -> NoReturn:
    """Raises ClientError (400)."""
    raise ClientError(400, message, param=param)


def refuse_unsupported(refused: dict[str, bool]) -> None:
    """By the name of the field: whether it asks for what the engine does not have."""
    for name, is_refused in refused.items():
        if is_refused:
            refuse(f"The bundled engine cannot honour this `{name}`.", name)


def _client_error(error: msgspec.ValidationError, *, at: str = "") -> ClientError:
    """`Expected `float` <= 2.0 - at `$.temperature`` → param `temperature`."""
    message = str(error)
    path, missing = _PATH.search(message), _MISSING.search(message)
    names = [at, path[1] if path else "", missing[1] if missing else ""]
    param = ".".join(name for name in names if name) or None
    problem = f"{_PATH.sub('', message)}."
    return ClientError(400, f"`{param}`: {problem}" if param else problem, param=param)
