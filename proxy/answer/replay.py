"""A stored answer in the form in which it is asked for, whatever form it came in."""

import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator

import msgspec

from proxy.answer.assembly import completion
from proxy.answer.chunking import chunks
from proxy.answer.events import events, response
from proxy.answer.grammar import DONE_FRAME
from proxy.answer.payload import Payload, decode
from proxy.call import Surface
from proxy.errors import RejoinderError

_FRAME_END = b"}\n\n"
_FRAME_END_WITH_NULL_USAGE = b',"usage":null}\n\n'
"""OpenAI puts it on every chunk of a client that asked for usage. JSON has no raw line ends within
its strings and kept frames are never empty objects, so a frame's end is found by its bytes."""

_FAULTS = (msgspec.MsgspecError, ArithmeticError, AttributeError, LookupError, RecursionError,
           TypeError, ValueError)  # fmt: skip
"""What putting JSON of others into another form may raise, if it is not what it was taken for."""


class Unreplayable(RejoinderError):
    """A recorded answer cannot be put into the form that is asked for."""


class Replays:
    """Makes replays, and remembers the last records that were read, and the last that had to be put
    into another form.

    To take a completion out of its chunks costs several times what the rest of a hit does. Many
    streamed answers are never asked for plain, so it is done at the first such hit and not when
    they are recorded; what it gave is a function of the record and is kept under the record's hash.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.held_bytes = 0
        """What is remembered now of other forms."""
        self._made: OrderedDict[bytes, bytes] = OrderedDict()
        self._read: OrderedDict[bytes, Payload] = OrderedDict()
        self._read_bytes = 0

    def read(self, stored: bytes) -> Payload | None:
        """See `proxy.answer.payload.decode`. A hit in memory brings the very bytes that the one
        before it did, so finding them again costs nothing."""
        payload = self._read.get(stored)
        if payload is not None:
            self._read.move_to_end(stored)
            return payload
        payload = decode(stored)
        if payload is not None and len(stored) <= self._max_bytes // 8:
            self._read[stored] = payload
            self._read_bytes += len(stored)
        while 2 * self._read_bytes > self._max_bytes:  # read, it takes as much again
            dropped, _ = self._read.popitem(last=False)
            self._read_bytes -= len(dropped)
        return payload

    def plain(self, payload: Payload) -> bytes:
        """The JSON body. As recorded where it was plain, else put together from the frames.
        Raises `Unreplayable`."""
        if payload.body:
            return payload.body
        if payload.surface is Surface.RESPONSES:
            return plain(payload)
        return self._once(_name(b"plain", payload), lambda: plain(payload))

    def stream(self, payload: Payload, *, include_usage: bool) -> bytes:
        """All frames, the terminal one included. Raises `Unreplayable`."""
        if not payload.body:
            return stream(payload, include_usage=include_usage)
        form = b"usage" if include_usage else b"stream"
        return self._once(
            _name(form, payload), lambda: stream(payload, include_usage=include_usage)
        )

    def forget(self) -> None:
        """Drop what is remembered."""
        self._made.clear()
        self._read.clear()
        self.held_bytes = self._read_bytes = 0

    def _once(self, name: bytes, make: Callable[[], bytes]) -> bytes:
        made = self._made.get(name)
        if made is not None:
            self._made.move_to_end(name)
            return made
        made = make()
        if len(made) <= self._max_bytes // 8:
            self._made[name] = made
            self.held_bytes += len(made)
        while self.held_bytes > self._max_bytes:
            _, dropped = self._made.popitem(last=False)
            self.held_bytes -= len(dropped)
        return made


def plain(payload: Payload) -> bytes:
    """The JSON body, made anew. Raises `Unreplayable`."""
    if payload.body:
        return payload.body
    with _converting():
        if payload.surface is Surface.RESPONSES:
            return response(payload.frames)
        return completion(payload.frames, payload.usage_frame, surface=payload.surface)


def stream(payload: Payload, *, include_usage: bool) -> bytes:
    """All frames, the terminal one included, made anew. `include_usage` means nothing to the
    Responses API, whose usage stands in its terminal event. Embeddings have no streamed form.
    Raises `Unreplayable`."""
    assert payload.surface is not Surface.EMBEDDINGS
    frames, usage_frame = payload.frames, payload.usage_frame
    if payload.body:
        with _converting():
            if payload.surface is Surface.RESPONSES:
                return events(payload.body)
            made = chunks(payload.body, surface=payload.surface)
        frames, usage_frame = made.frames, made.usage_frame
    if payload.surface is Surface.RESPONSES:
        return frames
    if include_usage:
        frames = frames.replace(_FRAME_END, _FRAME_END_WITH_NULL_USAGE) + usage_frame
    return frames + DONE_FRAME


@contextlib.contextmanager
def _converting() -> Iterator[None]:
    try:
        yield
    except _FAULTS as fault:
        raise Unreplayable("a recorded answer has no such form") from fault


def _name(form: bytes, payload: Payload) -> bytes:
    digest = hashlib.sha256(form)
    for part in (payload.surface.value.encode(), payload.body, payload.frames, payload.usage_frame):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()
