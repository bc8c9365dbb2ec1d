"""Renders chat templates in a process of its own, whose death is a template's fault."""

import contextlib
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import msgspec

from engine.text.frames import receive_frame, send_frame
from engine.text.rendering import Failed, Render, Rendered

_CPU_S = 2.0
_MEMORY_BYTES = 512 * 2**20
_PATIENCE_S = 20.0
"""Long enough for `_CPU_S` on a busy machine, and for a process to start there."""
_REAP_S = 5.0


class TemplateFault(Exception):  # of a model's template, not of ours
    """Why it cannot be rendered."""


class RendererStuck(Exception):  # nobody's fault that could be told
    """The process did not answer: it was stopped, or waits for a disk. The next one may."""


class Renderer:
    """One process, started when it is first needed, and again after a template was its end. For
    one thread; blocks for the time that a template takes."""

    def __init__(
        self,
        *,
        cpu_s: float = _CPU_S,
        memory_bytes: int = _MEMORY_BYTES,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """A template gets so much CPU time, and memory beyond what its process begins with.
        `patience_s`: by the clock, for a process that gets no CPU time."""
        self.patience_s = patience_s
        self._arguments = (str(cpu_s), str(memory_bytes))
        self._spent = f"it took more than {cpu_s:g} s or {memory_bytes >> 20} MiB"
        self._decoder = msgspec.msgpack.Decoder(Rendered | Failed)
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None

    def check(self, source: str) -> None:
        """Raises TemplateFault where it is no template; RendererStuck."""
        self._answer(Render(source=source, variables=None))

    def render(self, source: str, variables: dict[str, Any]) -> str:
        """`variables` are JSON values. Raises TemplateFault, RendererStuck."""
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
        deadline_s = time.monotonic() + self.patience_s
        answer = None
        try:
            with contextlib.suppress(BrokenPipeError):
                send_frame(process.stdin.fileno(), body, deadline_s=deadline_s)
                answer = receive_frame(process.stdout.fileno(), deadline_s=deadline_s)
        except TimeoutError as error:
            self._replace()
            raise RendererStuck(
                f"The process that renders chat templates gave no answer for {self.patience_s:g} s."
            ) from error
        if answer is None:
            self._replace()
            return Failed(problem=self._spent)
        return self._decoder.decode(answer)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._replace()
            # -P: a folder named `engine` where the user stands is not ours. A session of its own:
            # Ctrl-C in a terminal is for the parent, whose end is that of stdin.
            process = subprocess.Popen(  # noqa: S603 - our own module, and two numbers
                [sys.executable, "-P", "-m", "engine.text.rendering", *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            assert process.stdin is not None, "it was asked for"
            os.set_blocking(process.stdin.fileno(), False)
            self._process = process
            self._end = weakref.finalize(self, _end, process)
        return self._process

    def _replace(self) -> None:
        """By the next one, once that is needed."""
        self._end()
        self._process = None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None, "both were asked for"
        pipe.close()
    try:
        process.wait(timeout=_REAP_S)
    except subprocess.TimeoutExpired:  # it waits for a disk, and ends when that answers
        threading.Thread(target=process.wait, name="reap", daemon=True).start()
