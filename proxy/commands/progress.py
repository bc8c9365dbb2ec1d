"""How far a long command is, for the person who waits: a bar beside the result, on a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(what: str, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yields what is to be called with each step's size. Nothing is shown where standard error is
    no terminal. `total`: None where it is not known."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda step: bar.advance(task, step)
