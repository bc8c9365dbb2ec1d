"""The JSON Schema of the config file, for editors and for the reference."""

import ast
import inspect
import itertools
from typing import Any

import msgspec

from proxy.settings import (
    config,
    embedder,
    engine,
    listeners,
    longcontext,
    observing,
    record,
    semantic,
    upstreams,
    volatile,
)
from proxy.settings.units import schema_of, to_config

_SOURCES = (
    *(config, embedder, engine, listeners, longcontext, observing),
    *(record, semantic, upstreams, volatile),
)
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> bytes:
    """JSON Schema of the config file, each key with its meaning, unit and default."""
    document: dict[str, Any] = {
        "$schema": _DIALECT,
        "title": "Rejoinder config",
        **msgspec.json.schema(config.Config, schema_hook=schema_of),
    }
    documentation = _field_docs()
    for name, definition in document["$defs"].items():
        kind = next(getattr(source, name) for source in _SOURCES if hasattr(source, name))
        for field in msgspec.structs.fields(kind):
            shown = definition["properties"][field.encode_name]
            _describe(shown, documentation[name].get(field.name, ""))
            if field.default_factory is not msgspec.NODEFAULT:
                shown["default"] = msgspec.to_builtins(field.default_factory(), enc_hook=to_config)
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def _describe(shown: dict[str, Any], documentation: str) -> None:
    """Put the key's own words before those of its type, which name the unit."""
    of_type = shown.get("description", "")
    words = " ".join(f"{documentation} {of_type}".split())
    if words:
        shown["description"] = words


def _field_docs() -> dict[str, dict[str, str]]:
    """The docstrings that stand under the fields in the source, by class and field."""
    modules = [ast.parse(inspect.getsource(source)) for source in _SOURCES]
    return {
        node.name: _docs_of(node.body)
        for module in modules
        for node in module.body
        if isinstance(node, ast.ClassDef)
    }


def _docs_of(body: list[ast.stmt]) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, text in itertools.pairwise(body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[field.target.id] = str(text.value.value)
    return found
