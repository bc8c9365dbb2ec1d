"""A stored answer in the form in which it is asked for, whatever form it came in."""

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


def plain(payload: Payload) -> bytes:
    """The JSON body. As recorded where it was plain, else put together from the frames."""
    if payload.body:
        return payload.body
    if payload.surface is Surface.RESPONSES:
        return response(payload.frames)
    return completion(payload.frames, payload.usage_frame, surface=payload.surface)


def stream(payload: Payload, *, include_usage: bool) -> bytes:
    """All frames, the terminal one included. `include_usage` means nothing to the Responses API,
    whose usage stands in its terminal event. Embeddings have no streamed form."""
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
