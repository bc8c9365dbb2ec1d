"""The config file as YAML nodes that know their lines, and the variables written in them.

YAML is read by the core schema of YAML 1.2: only `true` and `false` are booleans, so `on`, `off`,
`yes` and `no` are text; `10:30` is text; `010` is ten. PyYAML would follow YAML 1.1 here.
"""

import re
from collections.abc import Mapping

import msgspec
import yaml

from proxy.settings.wording import mistake_in

_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_MAX_DIGITS = 40
"""A longer number is text: nothing here counts that far, and Python refuses thousands of digits."""
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_VARIABLE = re.compile(
    r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{"
)


class Malformed(Exception):
    """The text is not YAML, or holds what no config needs (several documents, unknown tags)."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class MissingVariable(Exception):
    """A `${…}` that cannot be filled in; the message is for the user."""


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """A text with its variables filled in. `from_environment`: it held at least one."""

    text: str
    from_environment: bool


class _Loader(yaml.SafeLoader):
    """Composes nodes only. Plain scalars stay text until their place says what they should be."""

    yaml_implicit_resolvers = {"<": [(f"{_TAG}merge", re.compile("<<"))]}  # noqa: RUF012  # PyYAML's


def compose(text: str) -> yaml.Node:
    """The root node of a YAML text. Raises `Malformed`."""
    try:
        node = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mistake = mistake_in(text, error)
        raise Malformed(mistake.line, mistake.message) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Malformed(line, f"character U+{error.character:04X} is not allowed") from None
    except RecursionError:
        raise Malformed(1, "nested too deeply") from None
    if node is None:
        raise Malformed(1, "the file is empty")
    return node


def line_of(node: yaml.Node) -> int:
    """Where a node begins; the first line is 1."""
    line: int = node.start_mark.line
    return line + 1


def fill(text: str, environ: Mapping[str, str]) -> Filled:
    """Replace `${NAME}` and `${NAME:-default}`; `$${` stands for a literal `${`.

    As in a shell, the default also stands in for a variable that is empty. Raises
    `MissingVariable`.
    """

    def value_of(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name, default = match["name"], match["default"]
        if name is None:
            raise MissingVariable(
                "`${` begins no variable; write ${NAME} or ${NAME:-default}, or $${ for itself"
            )
        if default is not None:
            return environ.get(name) or default
        if name not in environ:
            raise MissingVariable(f"the environment has no {name}, and there is no default")
        return environ[name]

    filled = _VARIABLE.sub(value_of, text)
    return Filled(text=filled, from_environment=filled != text)


def resolve(text: str) -> str | int | float | bool | None:
    """What a plain scalar means in the core schema of YAML 1.2 (section 10.3)."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text) and len(text) <= _MAX_DIGITS:
        # Decimal unless a prefix says otherwise: a leading zero is no octal sign in YAML 1.2.
        return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
    return float(text) if _FLOAT.fullmatch(text) and len(text) <= _MAX_DIGITS else text


def is_plain(node: yaml.ScalarNode) -> bool:
    """Written without quotes and not as a block, so that it may mean more than text."""
    return node.style is None
