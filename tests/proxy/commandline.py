"""`rejoinder` in the test's own process: a process of its own takes a second to begin."""

import contextlib
import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from proxy.cli import main

KEPT = ("PATH", "HOME", "SSL_CERT_FILE")


@dataclass
class Done:
    """As `subprocess.CompletedProcess` has it."""

    returncode: int
    stdout: str
    stderr: str


def run_command(*arguments: object, environ: Mapping[str, str]) -> Done:
    """Run a command in an environment that has little else than what is given. Whatever else the
    process prints meanwhile is taken for the command's."""
    # Commands that pipe bytes write below the text.
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with _environment(environ), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(one) for one in arguments])
    return Done(code, *(one.buffer.getvalue().decode() for one in (out, err)))


@contextlib.contextmanager
def _environment(environ: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    kept = {name: before[name] for name in KEPT if name in before}
    os.environ.clear()
    os.environ.update({**kept, "COLUMNS": "100", **environ})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
