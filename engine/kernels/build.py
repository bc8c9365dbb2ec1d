"""Compiles the kernels for this very CPU, once: the library lies in a cache folder.

Its name is the digest of the sources, the compiler and the CPU. It is written beside and renamed,
so that several processes may build at once and none loads half a file.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from engine.errors import EngineError

_FLAGS = (
    "-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-fopenmp", "-ffp-contract=off",
)  # fmt: skip
_NEEDED = frozenset({"avx2", "fma", "f16c"})
_TIMEOUT_S = 300.0
_CPUINFO = Path("/proc/cpuinfo")


class KernelsUnavailable(EngineError):
    """There are no kernels here; slower code serves. The message says why."""


def compiler_path() -> str:
    """What `CXX` names, else g++. Raises KernelsUnavailable."""
    named = os.environ.get("CXX") or "g++"
    found = shutil.which(named)
    if found is None:
        raise KernelsUnavailable(f"there is no C++ compiler {named!r}")
    return found


def cpu_flags() -> frozenset[str]:
    """What the CPU can do, in Linux's words; empty where that is not to be known."""
    if not _CPUINFO.is_file():
        return frozenset()
    for line in _CPUINFO.read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/rejoinder/kernels`, by default below `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rejoinder" / "kernels"


def library_path(*, compiler: str, flags: frozenset[str], folder: Path) -> Path:
    """The built library, from `folder` where it is there already. Raises KernelsUnavailable."""
    if missing := _NEEDED - flags:
        raise KernelsUnavailable(f"the CPU lacks {', '.join(sorted(missing))}")
    sources = sorted(Path(__file__).parent.glob("*.cpp"))
    headers = sorted(Path(__file__).parent.glob("*.h"))
    version = _run([compiler, "--version"])
    parts = [version, platform.machine(), " ".join(sorted(flags)), " ".join(_FLAGS)]
    parts += [path.read_text() for path in (*sources, *headers)]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    path = folder / f"{digest[:32]}.so"
    if not path.is_file():
        _compile(compiler, sources, path)
    return path


def _compile(compiler: str, sources: list[Path], path: Path) -> None:
    try:
        # Nobody else may put a library there that we would load.
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            built = Path(scratch) / path.name
            _run([compiler, *_FLAGS, *map(str, sources), "-o", str(built)])
            built.rename(path)
    except OSError as error:
        raise KernelsUnavailable(f"the kernels cannot be kept in {path.parent}: {error}") from error


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603  # the compiler is the administrator's choice
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        first = (error.stderr or "no message").strip().splitlines()[:1]
        raise KernelsUnavailable(f"{command[0]} failed: {' '.join(first)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelsUnavailable(f"{command[0]} cannot be run: {error}") from error
    return done.stdout
