"""The config file: text in, `Config` out, or one error with every mistake and its line; and back.

Relative paths in a config (`store.path`, the models' paths) count from the current folder of the
process, not from the config file's folder.
"""

import importlib.util
import logging
import os
import pathlib
import shlex
import sys
from collections.abc import Mapping

import msgspec

from proxy.errors import ConfigError
from proxy.settings.checks import Machine, check_config
from proxy.settings.config import Config
from proxy.settings.finding import Finding
from proxy.settings.nodes import Malformed, compose
from proxy.settings.tree import Path, Problem, Tree, read_tree, show_path
from proxy.settings.units import Secret, to_config

log = logging.getLogger(__name__)


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A config that works. `warnings` are whole lines, as the problems of `ConfigError` are."""

    config: Config
    warnings: tuple[str, ...]
    file: pathlib.Path
    lines: Mapping[Path, int]

    def at(self, path: Path, message: str) -> str:
        """What is found of a value later on, as such a line."""
        return _line(
            self.file, Problem(line=_line_of(path, self.lines), path=path, message=message)
        )


def load(path: pathlib.Path, *, environ: Mapping[str, str]) -> Config:
    """`read`, with its warnings in the log."""
    loaded = read(path, environ=environ)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return loaded.config


def read(path: pathlib.Path, *, environ: Mapping[str, str]) -> Loaded:
    """Read and check a config file. Raises what `text_of` and `parse` raise."""
    return parse(path, text_of(path), environ=environ)


def parse(path: pathlib.Path, text: str, *, environ: Mapping[str, str]) -> Loaded:
    """Read and check the text of a config file, which is only named by `path`.

    Raises `ConfigError` with every mistake at once, each as `file:line: path: what is wrong`.
    Neither secrets nor values of the environment stand in it.
    """
    try:
        root = compose(text)
    except Malformed as error:
        raise ConfigError([f"{path}:{error.line}: {error}"]) from None
    tree = read_tree(Config, root, environ)
    partial = Config(upstreams={}, routes=()) if tree.value is None else tree.value
    found = (_in_file(f, tree) for f in check_config(partial, _machine()))
    findings = [f for f in found if not _is_consequence(f, tree)]
    problems = [*tree.problems, *(_problem(f, tree) for f in findings if not f.warning)]
    if problems:
        problems.sort(key=lambda problem: problem.line)
        raise ConfigError([_line(path, problem) for problem in problems])
    warnings = tuple(_line(path, _problem(f, tree)) for f in findings)
    return Loaded(config=partial, warnings=warnings, file=path, lines=tree.lines)


def text_of(path: pathlib.Path) -> str:
    """The text of a config file. Raises `ConfigError`."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: the file is not UTF-8"]) from None


def dump(config: Config) -> bytes:
    """The config as JSON with all defaults; secrets are `***`, and so are tenants' keys."""
    shown = msgspec.to_builtins(_without_keys(config), enc_hook=to_config)
    return msgspec.json.format(msgspec.json.encode(shown), indent=2)


def _machine() -> Machine:
    return Machine(
        has_module=_has_module,
        has_path=lambda path: pathlib.Path(path).exists(),
        can_keep=_can_keep,
        pip=f"{shlex.quote(sys.executable)} -m pip",
    )


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a.b, where there is no a
        return False


def _can_keep(path: str) -> bool:
    # `Path.exists` raises below a folder that may not be entered; `access` just says no.
    file = pathlib.Path(path).absolute()
    exists = os.access(file, os.F_OK)
    if exists and not (file.is_file() and os.access(file, os.R_OK | os.W_OK)):
        return False
    # SQLite's other files come beside it, in a folder that is made if need be.
    folder = next(one for one in file.parents if os.access(one, os.F_OK))
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _in_file(finding: Finding, tree: Tree) -> Finding:
    target = None if finding.target is None else tree.in_file(finding.target)
    return msgspec.structs.replace(finding, path=tree.in_file(finding.path), target=target)


def _is_consequence(finding: Finding, tree: Tree) -> bool:
    """It only says that something is lacking which stands in the file but could not be read."""
    if any(finding.path[:n] in tree.broken for n in range(len(finding.path) + 1)):
        return True
    target = finding.target
    return target is not None and any(_on_one_line(target, broken) for broken in tree.broken)


def _on_one_line(one: Path, other: Path) -> bool:
    """One of them encloses the other."""
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _problem(finding: Finding, tree: Tree) -> Problem:
    message = finding.message
    if finding.file is not None and not pathlib.Path(finding.file).is_absolute():
        message += f", which is {pathlib.Path(finding.file).absolute()} here"
    return Problem(line=_line_of(finding.path, tree.lines), path=finding.path, message=message)


def _line_of(path: Path, lines: Mapping[Path, int]) -> int:
    """Of what encloses it where the file leaves it out."""
    while path not in lines and path:
        path = path[:-1]
    return lines.get(path, 1)


def _line(file: pathlib.Path, problem: Problem) -> str:
    where = f"{show_path(problem.path)}: " if problem.path else ""
    return f"{file}:{problem.line}: {where}{problem.message}"


def _without_keys(config: Config) -> Config:
    """Keys of a dict pass by `enc_hook`, and masked they would fall together: number them."""
    if config.tenants is None:
        return config
    names = config.tenants.keys.values()
    keys = {Secret(f"*** ({n})"): name for n, name in enumerate(names, start=1)}
    return msgspec.structs.replace(
        config, tenants=msgspec.structs.replace(config.tenants, keys=keys)
    )
