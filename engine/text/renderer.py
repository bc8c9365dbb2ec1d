"""Renders chat templates in a process of its own, whose death is a template's fault."""

import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import msgspec

from engine.text.frames import read_frame, write_frame
from engine.text.rendering import Failed, Render, Rendered

_CPU_S = 2.0
_MEMORY_BYTES = 512 * 2**20


class TemplateFault(Exception):  # of a model's template, not of ours
    """Why it cannot be rendered."""


class Renderer:
    """One process, started when it is first needed, and again after a template was its end. For
    one thread; blocks for the time that a template takes."""

    def __init__(self, *, cpu_s: float = _CPU_S, memory_bytes: int = _MEMORY_BYTES) -> None:
        """A template gets so much CPU time, and memory beyond what its process begins with."""
        self._arguments = (str(cpu_s), str(memory_bytes))
        self._spent = f"it took more than {cpu_s:g} s or {memory_bytes >> 20} MiB"
        self._decoder = msgspec.msgpack.Decoder(Rendered | Failed)
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None

    def check(self, source: str) -> None:
        """Raises TemplateFault where it is no template."""
        self._answer(Render(source=source, variables=None))

    def render(self, source: str, variables: dict[str, Any]) -> str:
        """`variables` are JSON values. Raises TemplateFault."""
        return self._answer(Render(source=source, variables=variables))

    def _answer(self, asked: Render) -> str:
        try:
            body = msgspec.msgpack.encode(asked)
        except (RecursionError, ValueError, OverflowError) as error:
            raise TemplateFault(str(error)) from error
        answered = self._exchanged(body)
        if isinstance(answered, Failed):
            raise TemplateFault(answered.problem)
        return answered.text

    def _exchanged(self, body: bytes) -> Rendered | Failed:
        process = self._running()
        assert process.stdin is not None, "both were asked for"
        assert process.stdout is not None
        try:
            write_frame(process.stdin, body)
            answer = read_frame(process.stdout)
        except BrokenPipeError:
            answer = None
        if answer is None:
            self._end()
            return Failed(problem=self._spent)
        return self._decoder.decode(answer)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            # -P: a folder named `engine` where the user stands is not ours. A session of its own:
            # Ctrl-C in a terminal is for the parent, whose end is that of stdin.
            self._process = subprocess.Popen(  # noqa: S603 - our own module, and two numbers
                [sys.executable, "-P", "-m", "engine.text.rendering", *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            self._end = weakref.finalize(self, _end, self._process)
        return self._process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
