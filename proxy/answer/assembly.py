"""A plain completion out of the chunks of a stream, as a client that adds up deltas would see it.

Total over all JSON objects: a field whose type changes on the way keeps its last value, so nothing
that a server invents can make it raise.
"""

from typing import Any

import msgspec

from proxy.answer.grammar import as_written
from proxy.answer.sse import frame_data, split_frames
from proxy.call import Surface

_ONCE = frozenset({"id", "type", "role", "name", "index", "object", "created", "format"})
"""Members of deltas that are said, not built up. Servers that repeat them mean the same."""
_STREAM_ONLY = frozenset({"obfuscation"})
"""Padding of chunks, without meaning in a plain answer."""

Json = dict[str, Any]


class _Text(list[str]):
    """A string that grows; its pieces are joined once, at the end."""


def completion(frames: bytes, usage_frame: bytes, *, surface: Surface) -> bytes:
    """The plain JSON of `surface` (chat or legacy completions) for joined content frames."""
    chunks: list[Json] = [_OBJECT.decode(frame_data(frame)) for frame in split_frames(frames)]
    answer: Json = {}
    choices: dict[int, Json] = {}
    for chunk in chunks:
        for choice in chunk.pop("choices", None) or ():
            _add_choice(choices.setdefault(choice.get("index", 0), {}), choice)
        _update(answer, chunk)
    whole = [_finished(choices[index], index, surface) for index in sorted(choices)]
    answer["object"] = "chat.completion" if surface is Surface.CHAT else "text_completion"
    answer["choices"] = whole
    if usage_frame:
        answer["usage"] = _OBJECT.decode(frame_data(usage_frame)).get("usage")
    for name in _STREAM_ONLY:
        answer.pop(name, None)
    return msgspec.json.encode(_joined(answer))


def _update(answer: Json, said: Json) -> None:
    """Top members, and those of a choice that are not built up: the last that says something."""
    for name, value in said.items():
        if value is not None or name not in answer:
            answer[name] = value


def _add_choice(into: Json, choice: Json) -> None:
    choice.pop("message", None)  # the message so far, as some servers send it beside each delta
    delta = choice.pop("delta", None)
    if isinstance(delta, dict):
        _add(into.setdefault("message", {}), delta)
    for name, value in choice.items():
        if name in ("text", "logprobs") or isinstance(value, list):
            _add(into, {name: value})
        else:
            _update(into, {name: value})


def _add(into: Json, delta: Json) -> None:
    for name, value in delta.items():
        into[name] = _sum(into.get(name), value, once=name in _ONCE)


def _sum(so_far: Any, value: Any, *, once: bool) -> Any:
    """One member of a delta added to what there is: strings and lists join, numbers add."""
    if value is None:
        return so_far
    if once:
        return so_far or value
    match so_far, value:
        case _Text(), str():
            so_far.append(value)
            return so_far
        case dict(), dict():
            _add(so_far, value)
            return so_far
        case list(), list() if not isinstance(so_far, _Text):
            _extend(so_far, value)
            return so_far
        case ((int() | float()), (int() | float())) if not isinstance(value, bool):
            return so_far + value
        case _:
            return _begun(value)


def _begun(value: Any) -> Any:
    """The first value of a member, in the form that grows."""
    if isinstance(value, str):
        return _Text([value])
    if isinstance(value, dict):
        begun: Json = {}
        _add(begun, value)
        return begun
    if isinstance(value, list):
        items: list[Any] = []
        _extend(items, value)
        return items
    return value


def _extend(items: list[Any], more: list[Any]) -> None:
    """Items with an `index` (tool calls) are added to the one of that index, others appended."""
    for item in more:
        if not isinstance(item, dict) or not isinstance(item.get("index"), int):
            items.append(item)
            continue
        for known in items:
            if isinstance(known, dict) and known.get("index") == item["index"]:
                _add(known, item)
                break
        else:
            items.append(_begun(item))


def _finished(choice: Json, index: int, surface: Surface) -> Json:
    """A choice in the order and with the members of the plain form."""
    whole: Json = {"index": index}
    if surface is Surface.CHAT:
        message = choice.pop("message", {})
        whole["message"] = {"role": "assistant", "content": None, **message}
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                call.pop("index", None)
    else:
        whole["text"] = ""
    whole.update(choice)
    whole.setdefault("logprobs", None)
    return whole


def _joined(value: Any) -> Any:
    """The same with every grown string joined."""
    if isinstance(value, _Text):
        return "".join(value)
    if isinstance(value, dict):
        return {name: _joined(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_joined(item) for item in value]
    return value


_OBJECT = msgspec.json.Decoder(dict[str, Any], float_hook=as_written)
