"""A stored answer in the form in which it is asked for, whatever form it came in."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable

from proxy.answer.assembly import completion
from proxy.answer.chunking import chunks
from proxy.answer.events import events, response
from proxy.answer.grammar import DONE_FRAME
from proxy.answer.payload import Payload
from proxy.call import Surface

_FRAME_END = b"}\n\n"
_FRAME_END_WITH_NULL_USAGE = b',"usage":null}\n\n'
"""OpenAI puts it on every chunk of a client that asked for usage. JSON has no raw line ends within
its strings and frames are never empty objects, so the end of a frame is found by its bytes."""


class Replays:
    """Makes replays, and remembers the last that had to be put into another form.

    To take a completion out of its chunks costs several times what the rest of a hit does. Many
    streamed answers are never asked for plain, so it is done at the first such hit and not when
    they are recorded; what it gave is a function of the record and is kept under the record's hash.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.held_bytes = 0
        """What is remembered now."""
        self._made: OrderedDict[bytes, bytes] = OrderedDict()

    def plain(self, payload: Payload) -> bytes:
        """The JSON body. As recorded where it was plain, else put together from the frames."""
        if payload.body:
            return payload.body
        if payload.surface is Surface.RESPONSES:
            return response(payload.frames)
        return self._once(_name(b"plain", payload), lambda: plain(payload))

    def stream(self, payload: Payload, *, include_usage: bool) -> bytes:
        """All frames, the terminal one included."""
        if not payload.body:
            return stream(payload, include_usage=include_usage)
        form = b"usage" if include_usage else b"stream"
        return self._once(
            _name(form, payload), lambda: stream(payload, include_usage=include_usage)
        )

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
    """The JSON body, made anew."""
    if payload.body:
        return payload.body
    if payload.surface is Surface.RESPONSES:
        return response(payload.frames)
    return completion(payload.frames, payload.usage_frame, surface=payload.surface)


def stream(payload: Payload, *, include_usage: bool) -> bytes:
    """All frames, the terminal one included, made anew. `include_usage` means nothing to the
    Responses API, whose usage stands in its terminal event. Embeddings have no streamed form."""
    assert payload.surface is not Surface.EMBEDDINGS
    if payload.surface is Surface.RESPONSES:
        return payload.frames or events(payload.body)
    frames, usage_frame = payload.frames, payload.usage_frame
    if payload.body:
        made = chunks(payload.body, surface=payload.surface)
        frames, usage_frame = made.frames, made.usage_frame
    if include_usage:
        frames = frames.replace(_FRAME_END, _FRAME_END_WITH_NULL_USAGE) + usage_frame
    return frames + DONE_FRAME


def _name(form: bytes, payload: Payload) -> bytes:
    digest = hashlib.sha256(form)
    for part in (payload.surface.value.encode(), payload.body, payload.frames, payload.usage_frame):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()
