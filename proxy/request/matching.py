"""Whether a request fits the conditions of a route. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proxy.call import Headers, Surface
from proxy.request.conversation import turns
from proxy.settings.config import Match, Span
from proxy.settings.glob import compile_globs

_TOKEN_BYTES = 4
"""What a token that is given by its number counts as."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What routing looks at. `model` as the client wrote it; None where a surface has no model."""

    model: str | None
    path: str
    """Below `/v1`, with its slash: `/chat/completions`."""
    headers: Headers
    tenant: str
    surface: Surface | None = None
    """None where the body is passed through unread; then it fits no condition on it."""
    fields: Mapping[str, Any] = {}
    """The body, decoded; empty where it is passed through unread."""


class Matcher:
    """The conditions of one route, compiled. All must hold."""

    def __init__(self, match: Match) -> None:
        globs = (match.model,) if isinstance(match.model, str) else match.model
        self._model = None if globs is None else compile_globs(*globs)
        self._path = None if match.path is None else compile_globs(match.path)
        self._tenant = None if match.tenant is None else compile_globs(match.tenant)
        self._headers = tuple(
            (header.lower().encode("latin-1"), compile_globs(glob))
            for header, glob in match.header.items()
        )
        self._fields = tuple(
            (tuple(path.split(".")), compile_globs(glob)) for path, glob in match.body.items()
        )
        self._prompt = match.prompt_bytes

    def fits(self, facts: Facts, model: str | None, path: str) -> bool:
        """All conditions hold. `model` is the request's with its alias resolved, `path` whole."""
        return (
            self.takes_model(model)
            and (self._path is None or self._path.fullmatch(path) is not None)
            and self.takes_tenant(facts.tenant)
            and all(_has(facts.headers, name, glob) for name, glob in self._headers)
            and all(_holds(facts.fields, path, glob) for path, glob in self._fields)
            and (self._prompt is None or _is_within(facts, self._prompt))
        )

    def takes_model(self, model: str | None) -> bool:
        """The model's condition holds; a request without a model meets no such condition."""
        return self._model is None or (
            model is not None and self._model.fullmatch(model) is not None
        )

    def takes_tenant(self, tenant: str) -> bool:
        """The tenant's condition holds."""
        return self._tenant is None or self._tenant.fullmatch(tenant) is not None


def prompt_bytes(surface: Surface, fields: Mapping[str, Any]) -> int:
    """Bytes of UTF-8 of all text that the model reads; images and sound count as nothing."""
    if surface is Surface.COMPLETIONS:
        return _size_of(fields.get("prompt"))
    if surface is Surface.EMBEDDINGS:
        return _size_of(fields.get("input"))
    texts = (text for turn in turns(surface, dict(fields)) for text in turn.texts)
    return sum(map(_size_of, texts))


def _is_within(facts: Facts, span: Span) -> bool:
    if facts.surface is None:
        return False
    size = prompt_bytes(facts.surface, facts.fields)
    return span.min <= size and (span.max is None or size <= span.max)


def _size_of(prompt: Any) -> int:
    if isinstance(prompt, str):
        return len(prompt.encode("utf-8", "surrogatepass"))
    if isinstance(prompt, list):
        return sum(map(_size_of, prompt))
    return _TOKEN_BYTES if isinstance(prompt, int) else 0


def _has(headers: Headers, name: bytes, glob: re.Pattern[str]) -> bool:
    return any(
        glob.fullmatch(value.decode("latin-1")) is not None
        for known, value in headers
        if known == name
    )


def _holds(fields: Mapping[str, Any], path: tuple[str, ...], glob: re.Pattern[str]) -> bool:
    return any(glob.fullmatch(text) is not None for text in _texts_at(fields, path))


def _texts_at(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    """The values at a path as text; of a list, each of its items."""
    if isinstance(value, list):
        for item in value:
            yield from _texts_at(item, path)
    elif path:
        if isinstance(value, Mapping) and path[0] in value:
            yield from _texts_at(value[path[0]], path[1:])
    elif isinstance(value, str):
        yield value
    elif not isinstance(value, Mapping):
        yield msgspec.json.encode(value).decode()
