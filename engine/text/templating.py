"""The jinja2 environment that chat templates are written for: that of transformers."""

import datetime
import json
from collections.abc import Sized
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.text.allowance import AllowanceSpent

RENDER_FAULTS = (
    jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError,
    RecursionError, AllowanceSpent,
)  # fmt: skip
"""What a template may raise over messages that it was not written for."""

_MAX_NUMBER = 2**64
_MAX_LENGTH = 2**20


class _Sandbox(ImmutableSandboxedEnvironment):
    """Nor may a template take all time by a product or a power: nothing interrupts those."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise SecurityError("powers are not for templates")
        if _size(left) * _size(right) > (_MAX_NUMBER if _are_numbers(left, right) else _MAX_LENGTH):
            raise SecurityError("a product in the template is too large")
        return super().call_binop(context, operator, left, right)


def _are_numbers(left: Any, right: Any) -> bool:
    return isinstance(left, int | float) and isinstance(right, int | float)


def _size(value: Any) -> int | float:
    if isinstance(value, int | float):
        return abs(value)
    return len(value) if isinstance(value, Sized) else 1


def template_environment() -> ImmutableSandboxedEnvironment:
    """Templates come with models, and are not trusted."""
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _Generation(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """jinja2's own escapes for HTML; models were trained on plain JSON. Templates pass the
    options by name or place, in transformers' order."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().astimezone().strftime(pattern)
