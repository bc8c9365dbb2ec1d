"""Calls of tools in what a model writes. Pure: text in, text and calls out, piece by piece; the
same whichever pieces the text came in."""

import re
import uuid
from collections.abc import Iterable
from typing import Protocol

import msgspec

from engine.text.stops import overlap
from engine.text.toolformat import ToolFormat
from proxy.upstreams.local.callforms import Call, CallForm, Extent, JsonCalls, call_form
from proxy.upstreams.local.extent import JsonExtent
from proxy.upstreams.local.tools import Tooling


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """Text of the answer, never empty."""

    text: str


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """A call begins; `number` counts from 0."""

    number: int
    call_id: str
    name: str


class Argued(msgspec.Struct, frozen=True, kw_only=True):
    """More of a call's arguments, as JSON text."""

    number: int
    text: str


Heard = Said | Called | Argued


class Reader(Protocol):
    """Reads one choice."""

    def push(self, text: str) -> list[Heard]:
        """The next piece of the answer."""
        ...

    def close(self) -> list[Heard]:
        """What was held back, at the end of the answer."""
        ...


class ForcedCalls:
    """A grammar saw to it that there is nothing but calls: arguments are passed on as they come.
    See `engine.grammars.grammar` for the form."""

    def __init__(self) -> None:
        self._held = ""
        self._num_calls = 0
        self._arguments: JsonExtent | None = None

    def push(self, text: str) -> list[Heard]:
        self._held += text
        heard: list[Heard] = []
        while self._held:
            before = len(self._held)
            heard += self._go_on()
            if len(self._held) == before:
                break
        return heard

    def close(self) -> list[Heard]:
        return []

    def _go_on(self) -> list[Heard]:
        if self._arguments is None:
            head = _HEAD.search(self._held)
            if head is None:
                return []
            self._held = self._held[head.end() :]
            self._arguments = JsonExtent()
            called = _called(self._num_calls, msgspec.json.decode(head[1]))
            self._num_calls += 1
            return [called]
        end = self._arguments.feed(self._held)
        piece, self._held = self._held[:end], "" if end is None else self._held[end:]
        if end is not None:
            self._arguments = None
        return [Argued(number=self._num_calls - 1, text=piece)]


class FoundCalls:
    """Calls between marks, in an answer that may hold text as well. Each is held back until it is
    whole: what only looks like a call of a known tool stays text. White space between calls is
    nobody's."""

    def __init__(self, form: ToolFormat, calls: CallForm, *, max_calls: int | None) -> None:
        """Calls after `max_calls` are dropped."""
        self._form = form
        self._calls = calls
        self._max_calls = max_calls
        self._held = ""
        self._extent: Extent | None = None
        self._end: int | None = None
        self._blank = ""
        self._num_calls = 0
        self._was_call = False

    def push(self, text: str) -> list[Heard]:
        self._held += text
        return self._read(text, final=False)

    def close(self) -> list[Heard]:
        heard = self._read("", final=True)
        if self._extent is not None:
            heard += self._say(self._form.opening + self._held)
        if self._blank and not self._was_call:
            heard.append(Said(text=self._blank))
        return heard

    def _read(self, new: str, *, final: bool) -> list[Heard]:
        heard: list[Heard] = []
        while True:
            if self._extent is None:
                heard += self._look(final=final)
                if self._extent is None:
                    return heard
                new = self._held
            ended = self._collect(self._extent, new, final=final)
            if ended is None:
                return heard
            heard += ended
            new = ""

    def _look(self, *, final: bool) -> list[Heard]:
        """Text up to the next mark."""
        text, mark, rest = self._held.partition(self._form.opening)
        if mark:
            self._extent, self._end, self._held = self._calls.extent(), None, rest
            return self._say(text)
        keep = 0 if final else overlap(self._held, self._form.opening)
        text, self._held = _cut(self._held, len(self._held) - keep)
        return self._say(text)

    def _collect(self, extent: Extent, new: str, *, final: bool) -> list[Heard] | None:
        """What stands after a mark turned out to be; None while it is not whole."""
        if self._end is None:
            end = extent.feed(new)
            if extent.broken:
                self._extent = None
                return self._say(self._form.opening)
            if end is None:
                return None
            self._end = len(self._held) - len(new) + end
        body, rest = _cut(self._held, self._end)
        blank = rest[: len(rest) - len(rest.lstrip())]
        closing = self._form.closing
        closed = closing != "" and rest.startswith(closing, len(blank))
        if closing and not closed and not final and closing.startswith(rest.lstrip()):
            return None
        used = len(blank) + len(closing) if closed else 0
        self._extent, self._held = None, rest[used:]
        calls = self._calls.read(body)
        if calls is None:
            return self._say(self._form.opening + body + rest[:used])
        return self._call(calls)

    def _call(self, calls: list[Call]) -> list[Heard]:
        self._blank, self._was_call = "", True
        heard: list[Heard] = []
        for call in calls:
            if self._max_calls is None or self._num_calls < self._max_calls:
                heard += _whole(self._num_calls, call)
                self._num_calls += 1
        return heard

    def _say(self, text: str) -> list[Heard]:
        """White space at the end waits for what follows."""
        text = self._blank + text
        shown = text.rstrip()
        self._blank = text[len(shown) :]
        if not shown:
            return []
        self._was_call = False
        return [Said(text=shown)]


class WholeCall:
    """Nothing marks a call: an answer that is JSON may be one, and is held back until its end."""

    def __init__(self, names: Iterable[str]) -> None:
        self._calls = JsonCalls(names)
        self._held = ""
        self._is_text = False

    def push(self, text: str) -> list[Heard]:
        self._held += text
        self._is_text = self._is_text or self._held.lstrip()[:1] not in ("", "{", "[")
        return self._text() if self._is_text else []

    def close(self) -> list[Heard]:
        calls = None if self._is_text else self._calls.read(self._held)
        if not calls:
            return self._text()
        return [heard for number, call in enumerate(calls) for heard in _whole(number, call)]

    def _text(self) -> list[Heard]:
        text, self._held = self._held, ""
        return [Said(text=text)] if text else []


def reader(form: ToolFormat, tooling: Tooling) -> Reader:
    """For one choice of an answer that may call tools."""
    if tooling.forced:
        return ForcedCalls()
    if not form.opening:
        return WholeCall(tooling.names)
    calls = call_form(form, (tool.function for tool in tooling.offered))
    return FoundCalls(form, calls, max_calls=None if tooling.parallel else 1)


def _whole(number: int, call: Call) -> list[Heard]:
    return [_called(number, call.name), Argued(number=number, text=call.arguments)]


def _called(number: int, name: str) -> Called:
    return Called(number=number, call_id=f"call_{uuid.uuid4().hex[:24]}", name=name)


def _cut(text: str, at: int) -> tuple[str, str]:
    return text[:at], text[at:]


_HEAD = re.compile(r'\{"name": ("(?:[^"\\]|\\.)*"), "(?:arguments|parameters)": ')
