"""From YAML nodes to the types of `proxy.settings.config`: every mistake found, each with its line.

The types lead: each node is read as what its place calls for, so a plain `123` or `on` is text
where text is wanted, and a number that came out of the environment is a number where one is wanted.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import yaml

from proxy.settings.nodes import Filled, MissingVariable, fill, is_plain, line_of, resolve
from proxy.settings.units import Bytes, Duration, Secret, from_config

Path = tuple[str | int, ...]
T = TypeVar("T", bound=msgspec.Struct)

_MERGE: Final = "tag:yaml.org,2002:merge"
_TAGS: Final = frozenset({_MERGE, *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))})


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A mistake at a place of the config. `line` counts from 1."""

    line: int
    path: Path
    message: str


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """What was read. With problems, `value` holds what could be read, or is None."""

    value: Any
    problems: tuple[Problem, ...]
    lines: Mapping[Path, int]
    """Where each place that the file names begins."""
    broken: frozenset[Path]
    """Places whose value could not be read; defaults or nothing stand there in `value`."""
    kept: Mapping[Path, tuple[int, ...]]
    """By the place of a list: which of its items stand in `value`."""

    def in_file(self, path: Path) -> Path:
        """A place in `value`, as the file counts it."""
        place: Path = ()
        for step in path:
            kept = self.kept.get(place, ())
            is_moved = isinstance(step, int) and step < len(kept)
            place = (*place, kept[int(step)] if is_moved else step)
        return place


class _Broken:
    """Stands for a value that could not be read."""


_BROKEN: Final = _Broken()


def read_tree(kind: type[msgspec.Struct], root: yaml.Node, environ: Mapping[str, str]) -> Tree:
    """Read a whole document. Values of the environment and secrets never stand in a problem."""
    reader = _Reader(environ)
    value = reader.read(kind, root, ())
    return Tree(
        value=None if value is _BROKEN else value,
        problems=tuple(reader.problems),
        lines=reader.lines,
        broken=frozenset(reader.broken),
        kept=reader.kept,
    )


def show_path(path: Path) -> str:
    """`routes[1].match.model`; secrets among the keys are masked."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        elif isinstance(part, Secret):
            shown += "[***]"
        elif part.replace("_", "").replace("-", "").isalnum():
            shown += f".{part}" if shown else part
        else:
            shown += f'["{part}"]'
    return shown


def suggest(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?` where a known name is close, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


class _Reader:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        self.lines: dict[Path, int] = {}
        self.broken: set[Path] = set()
        self.kept: dict[Path, tuple[int, ...]] = {}
        self._environ = environ

    def read(self, kind: Any, node: yaml.Node, path: Path) -> Any:
        """The node as `kind`, or `_BROKEN` with at least one problem noted."""
        self.lines[path] = line_of(node)
        options = _options(kind)
        if node.tag not in _TAGS:
            return self._wrong(options, f"the YAML tag {node.tag!r}", node, path)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(options, node, path)
        if isinstance(node, yaml.SequenceNode):
            return self._sequence(options, node, path)
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(options, node, path)

    def _mapping(self, options: list[Any], node: yaml.MappingNode, path: Path) -> Any:
        for kind in options:
            if _is_struct(kind):
                return self._struct(kind, node, path)
            if get_origin(kind) is dict:
                return self._dict(kind, node, path)
        return self._wrong(options, "a mapping", node, path)

    def _struct(self, cls: type[T], node: yaml.MappingNode, path: Path) -> T | _Broken:
        hints = get_type_hints(cls, include_extras=True)
        values: dict[str, Any] = {}
        for name, key, child in self._items(str, node, path):
            if name not in hints:
                self._unknown(name, hints, key, path)
                continue
            values[name] = self.read(hints[name], child, (*path, name))
        required = {f.name for f in msgspec.structs.fields(cls) if f.required}
        for name in sorted(required - values.keys()):
            if (*path, name) not in self.broken:
                self._problem(node, path, f"`{name}` is missing")
            self.broken.add((*path, name))
        whole = {name: value for name, value in values.items() if value is not _BROKEN}
        if required - whole.keys():
            self.broken.add(path)
            return _BROKEN
        return self._build(cls, whole, node, path)

    def _unknown(self, name: str, known: Mapping[str, Any], node: yaml.Node, path: Path) -> None:
        self._problem(node, (*path, name), f"unknown key{suggest(name, known)}")
        # What was probably meant counts as unreadable: no second mistake follows from the first.
        for meant in difflib.get_close_matches(name, list(known), n=1):
            self.broken.add((*path, meant))

    def _build(
        self, cls: type[T], values: dict[str, Any], node: yaml.Node, path: Path
    ) -> T | _Broken:
        try:
            return cls(**values)
        except ValueError as error:
            # With a part missing, what the whole says of itself would only mislead.
            if not any(len(b) == len(path) + 1 and b[:-1] == path for b in self.broken):
                self._problem(node, path, str(error))
            self.broken.add(path)
            return _BROKEN

    def _dict(self, kind: Any, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        key_kind, value_kind = get_args(kind)
        read: dict[str, Any] = {}
        for name, _, child in self._items(key_kind, node, path):
            value = self.read(value_kind, child, (*path, name))
            if value is not _BROKEN:
                read[name] = value
        return read

    def _items(
        self, key_kind: type[str], node: yaml.MappingNode, path: Path
    ) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Key, key's node, value's node; variables filled in, duplicates noted and left out."""
        first: dict[str, int] = {}
        for key, value in _merged(node):
            if not isinstance(key, yaml.ScalarNode):
                self._problem(key, path, "a key must be text")
                continue
            filled = self._fill(key, path)
            if filled is None:
                self.broken.add((*path, key.value))
                continue
            name = key_kind(filled.text)
            if name in first:
                message = f"written twice; the first is in line {first[name]}"
                self._problem(key, (*path, name), message)
                continue
            first[name] = line_of(key)
            yield name, key, value

    def _sequence(self, options: list[Any], node: yaml.SequenceNode, path: Path) -> Any:
        for kind in options:
            if get_origin(kind) is tuple:
                item_kind = get_args(kind)[0]
                items = [self.read(item_kind, n, (*path, i)) for i, n in enumerate(node.value)]
                kept = {i: item for i, item in enumerate(items) if item is not _BROKEN}
                self.kept[path] = tuple(kept)
                return tuple(kept.values())
        return self._wrong(options, "a list", node, path)

    def _scalar(self, options: list[Any], node: yaml.ScalarNode, path: Path) -> Any:
        filled = self._fill(node, path)
        if filled is None:
            self.broken.add(path)
            return _BROKEN
        plain = resolve(filled.text) if is_plain(node) or filled.from_environment else filled.text
        if plain is None and is_plain(node) and NoneType in options:
            return None
        leaves = [k for k in options if not _is_struct(k) and get_origin(k) not in (dict, tuple)]
        leaves = [k for k in leaves if k is not NoneType]
        got = "another value" if filled.from_environment else _shown(filled.text, plain)
        if not leaves or (plain is None and is_plain(node) and not filled.from_environment):
            return self._wrong(options, got, node, path)
        return self._leaf(leaves[0], filled, plain, got, node=node, path=path)

    def _leaf(
        self, kind: Any, filled: Filled, plain: Any, got: str, *, node: yaml.Node, path: Path
    ) -> Any:
        value = filled.text if _takes_text(kind) else plain
        try:
            return msgspec.convert(value, kind, dec_hook=from_config)
        except msgspec.ValidationError as error:
            self.broken.add(path)
            self._problem(node, path, f"{_expected(kind, error)}, got {got}{_near(kind, filled)}")
            return _BROKEN

    def _fill(self, node: yaml.ScalarNode, path: Path) -> Filled | None:
        try:
            return fill(node.value, self._environ)
        except MissingVariable as error:
            self._problem(node, path, str(error))
            return None

    def _wrong(self, options: list[Any], got: str, node: yaml.Node, path: Path) -> _Broken:
        wanted = " or ".join(dict.fromkeys(_described(k) for k in options if k is not NoneType))
        self._problem(node, path, f"expected {wanted}, got {got}")
        self.broken.add(path)
        return _BROKEN

    def _problem(self, node: yaml.Node, path: Path, message: str) -> None:
        self.problems.append(Problem(line=line_of(node), path=path, message=message))


def _merged(
    node: yaml.MappingNode, inside: tuple[yaml.Node, ...] = ()
) -> list[tuple[yaml.Node, yaml.Node]]:
    """The pairs of a mapping; what `<<` brings in comes last and yields to what stands there."""
    pairs: list[tuple[yaml.Node, yaml.Node]] = []
    brought: list[yaml.MappingNode] = []
    for key, value in node.value:
        sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
        if key.tag == _MERGE and all(isinstance(one, yaml.MappingNode) for one in sources):
            brought += sources
        else:
            pairs.append((key, value))
    names = {key.value for key, _ in pairs if isinstance(key, yaml.ScalarNode)}
    for source in brought:
        if source is node or source in inside:
            continue
        for key, value in _merged(source, (*inside, node)):
            if isinstance(key, yaml.ScalarNode) and key.value not in names:
                names.add(key.value)
                pairs.append((key, value))
    return pairs


def _options(kind: Any) -> list[Any]:
    """The members of a union, or the one type there is."""
    if get_origin(kind) in (Union, UnionType):
        return list(get_args(kind))
    return [kind]


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _takes_text(kind: Any) -> bool:
    kind = _bare(kind)
    if get_origin(kind) is Literal:
        return all(isinstance(value, str) for value in get_args(kind))
    return kind is str or kind is Secret


_NOUNS: Final[dict[Any, str]] = {
    str: "text", Secret: "text", int: "a whole number", float: "a number", bool: "true or false",
    Duration: "a duration such as 10s, 5m or 1h", Bytes: "a size such as 64MiB or 8GiB",
}  # fmt: skip


def _described(kind: Any) -> str:
    kind = _bare(kind)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(value) for value in get_args(kind))
    if get_origin(kind) is tuple:
        return "a list"
    return _NOUNS.get(kind, "a mapping")


def _expected(kind: Any, error: msgspec.ValidationError) -> str:
    """`expected …` in the user's words; msgspec's own where it knows more (a bound)."""
    if isinstance(error.__cause__, ValueError):
        return str(error)
    words = str(error).replace("`", "")
    for name, noun in (("int", "a whole number"), ("float", "a number"), ("str", "text")):
        if words.startswith(f"Expected {name} ") and ", got" not in words:
            return f"expected {noun} {words.removeprefix(f'Expected {name} ')}"
    return f"expected {_described(kind)}"


def _near(kind: Any, filled: Filled) -> str:
    bare = _bare(kind)
    if get_origin(bare) is not Literal or filled.from_environment:
        return ""
    return suggest(filled.text, map(str, get_args(bare)))


def _shown(text: str, plain: Any) -> str:
    if plain is None:
        return "nothing"
    return repr(text) if isinstance(plain, str) else text
