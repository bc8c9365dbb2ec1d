"""The process in which chat templates are rendered: `python -m engine.text.rendering CPU_S BYTES`,
which reads `Render` from stdin and writes `Rendered` or `Failed` to stdout, one for one.

Templates come with models and are not trusted. The sandbox keeps them from the machine; what one
call of a filter takes, nothing inside of a process can end, so time and memory are the kernel's to
watch: it ends a process that computes for longer, and gives it no more memory.
"""

import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import jinja2
import msgspec

from engine.text.frames import FrameTooLarge, read_frame, write_frame
from engine.text.templating import template_environment

_SIZE = Path("/proc/self/statm")


class Render(msgspec.Struct, frozen=True, kw_only=True):
    """`variables` None: only see whether it is a template."""

    source: str
    variables: dict[str, Any] | None


class Rendered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    text: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    problem: str


_TOO_LARGE = msgspec.msgpack.encode(Failed(problem="what it is given does not fit into memory"))


class Rendering:
    """Compiles each template once."""

    def __init__(self) -> None:
        self._compiled: dict[str, jinja2.Template] = {}

    def answer(self, asked: Render) -> Rendered | Failed:
        """Of whatever goes wrong, what it was."""
        try:
            template = self._template(asked.source)
            return Rendered(text=_text(template, asked.variables))
        except Exception as error:  # noqa: BLE001  # whatever a template raises is its own fault
            return Failed(problem=str(error) or type(error).__name__)

    def _template(self, source: str) -> jinja2.Template:
        if source not in self._compiled:
            self._compiled[source] = template_environment().from_string(source)
        return self._compiled[source]


def _text(template: jinja2.Template, variables: Mapping[str, Any] | None) -> str:
    text = "" if variables is None else template.render(variables)
    text.encode()  # a lone surrogate is refused here
    return text


def serve(source: BinaryIO, sink: BinaryIO, *, cpu_s: float) -> None:
    """Returns at the end of `source`. The process is ended by the kernel where one answer takes
    more than `cpu_s`."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    rendering = Rendering()
    while True:
        try:
            body = read_frame(source)
        except FrameTooLarge:
            write_frame(sink, _TOO_LARGE)
            continue
        if body is None:
            return
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        answer = _answer(rendering, body)
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_frame(sink, answer)


def _answer(rendering: Rendering, body: bytes) -> bytes:
    try:
        asked = msgspec.msgpack.decode(body, type=Render)
        return msgspec.msgpack.encode(rendering.answer(asked))
    except MemoryError:
        return _TOO_LARGE


def _bound_memory(more_bytes: int) -> None:
    """No-op where the system does not tell a process its size."""
    if _SIZE.exists():
        now = int(_SIZE.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + more_bytes, now + more_bytes))


if __name__ == "__main__":
    _bound_memory(int(sys.argv[2]))
    serve(sys.stdin.buffer, sys.stdout.buffer, cpu_s=float(sys.argv[1]))
