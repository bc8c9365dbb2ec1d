"""A config's YAML with its scalars as they are written: `off` stays `off`, and is no `false`."""

import re
from typing import Any

import yaml

_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"
_WIDE = 1000
_NOTHING = re.compile(r"(?:~|null|Null|NULL|)$")


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012  # PyYAML's
        "<": [(_MERGE, re.compile("<<$"))],
        **{first: [(_NULL, _NOTHING)] for first in ("~", "n", "N", "")},
    }


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = {  # noqa: RUF012  # PyYAML's
        first: [(_NULL, _NOTHING)] for first in ("~", "n", "N", "")
    }


def read_written(text: str) -> dict[str, Any]:
    """A config that was read without a mistake; all its scalars are texts, or None."""
    document: dict[str, Any] = yaml.load(text, _Loader)  # noqa: S506  # a SafeLoader
    return document


def write_lines(document: dict[str, Any]) -> list[str]:
    """The other way."""
    text = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=_WIDE
    )
    return text.splitlines()
