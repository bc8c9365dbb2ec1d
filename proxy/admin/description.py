"""The admin port's own description, in OpenAPI's form: `GET /openapi.json`.

Litestar describes paths, parameters and answers off the handlers. Bodies are read by the handlers
themselves, for errors in OpenAI's shape, so they are put in here.
"""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import msgspec
from litestar import Request
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from proxy.errors import ErrorBody

PATH = "/openapi.json"
_REFERENCE = "#/components/schemas/{name}"
_TOKEN = "token"  # noqa: S105  # a name in the description
_LINES = "application/jsonl"
_OF_LINES = ("/cache/import", "/cache/pairs")

Bodies = Mapping[str, type[msgspec.Struct]]
"""What a POST takes, by its path."""


def description(bodies: Bodies) -> OpenAPIConfig:
    """For the application; what it serves is behind the same gate as all else."""
    return OpenAPIConfig(
        title="Rejoinder's admin port",
        version=version("rejoinder"),
        use_handler_docstrings=True,
        path=PATH,
        render_plugins=(_Description(bodies),),
        security=[{_TOKEN: []}],
        components=Components(
            security_schemes={_TOKEN: SecurityScheme(type="http", scheme="bearer")}
        ),
    )


class _Description(JsonRenderPlugin):
    def __init__(self, bodies: Bodies) -> None:
        super().__init__(path="/")
        self._bodies = bodies

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return msgspec.json.encode(_completed(openapi_schema, self._bodies))


def _completed(schema: dict[str, Any], bodies: Bodies) -> dict[str, Any]:
    """With the bodies, and with the one shape of all errors. Nothing is modified."""
    types = (*bodies.values(), ErrorBody)
    _, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    known = {**schema["components"]["schemas"], **components}
    paths = {path: _with_body(path, item, bodies) for path, item in schema["paths"].items()}
    return {**schema, "paths": paths, "components": {**schema["components"], "schemas": known}}


def _with_body(path: str, item: dict[str, Any], bodies: Bodies) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for method, operation in item.items():
        responses = {
            code: response for code, response in operation["responses"].items() if code < "400"
        }
        told[method] = {**operation, "responses": {**responses, "default": _ERROR}}
        if method == "post" and path in bodies:
            told[method]["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": _named(bodies[path])}},
            }
        elif path in _OF_LINES:
            told[method]["requestBody"] = {"content": {_LINES: {"schema": {"type": "string"}}}}
    return told


def _named(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}


_ERROR = {
    "description": "What was wrong, in OpenAI's shape.",
    "content": {"application/json": {"schema": _named(ErrorBody)}},
}
