"""The output of a response, item by item, and the events that tell it ("Streaming events" of the
Responses API's reference). Pure; events carry no numbers yet."""

import uuid
from collections.abc import Sequence
from typing import Literal, assert_never

from proxy.upstreams.local.answer import Json, TokenDetail
from proxy.upstreams.local.calls import Argued, Called, Heard, Said

Ended = Literal["completed", "incomplete"]


class Output:
    """Grows as the answer is heard. One item is open at a time."""

    def __init__(self) -> None:
        self.items: list[Json] = []
        """Those that are whole."""
        self._open: _Message | _Call | None = None

    def hear(self, heard: Heard, logprobs: Sequence[TokenDetail] | None) -> list[Json]:
        """The events of what comes next. `logprobs`: of this text."""
        match heard:
            case Said():
                begun, message = self._message()
                return [*begun, message.say(heard.text, logprobs or ())]
            case Called():
                return [*self._end("completed"), *self._begin(_Call(len(self.items), heard))]
            case Argued():
                assert isinstance(self._open, _Call)
                return [self._open.argue(heard.text)]
            case _:
                assert_never(heard)

    def close(self, ended: Ended) -> list[Json]:
        """The answer is over; where nothing was said, it is an empty message."""
        begun = [] if self.items or self._open is not None else self._message()[0]
        return [*begun, *self._end(ended)]

    def _message(self) -> tuple[list[Json], "_Message"]:
        if isinstance(self._open, _Message):
            return [], self._open
        ended = self._end("completed")
        message = _Message(len(self.items))
        return [*ended, *self._begin(message)], message

    def _begin(self, item: "_Message | _Call") -> list[Json]:
        self._open = item
        return item.begin()

    def _end(self, ended: Ended) -> list[Json]:
        if self._open is None:
            return []
        last, self._open = self._open, None
        item = last.item(ended)
        self.items.append(item)
        done = {"type": "response.output_item.done", "output_index": last.index, "item": item}
        return [*last.end(), done]


class _Message:
    def __init__(self, index: int) -> None:
        self.index = index
        self._id = f"msg_{uuid.uuid4().hex}"
        self._at: Json = {"output_index": index, "item_id": self._id, "content_index": 0}
        self._text = ""
        self._logprobs: list[TokenDetail] = []

    def begin(self) -> list[Json]:
        item = self.item("in_progress") | {"content": []}
        return [
            {"type": "response.output_item.added", "output_index": self.index, "item": item},
            {"type": "response.content_part.added", **self._at, "part": self._part()},
        ]

    def say(self, text: str, logprobs: Sequence[TokenDetail]) -> Json:
        self._text += text
        self._logprobs += logprobs
        said = {"delta": text, "logprobs": list(logprobs)}
        return {"type": "response.output_text.delta", **self._at, **said}

    def end(self) -> list[Json]:
        said = {"text": self._text, "logprobs": self._logprobs}
        return [
            {"type": "response.output_text.done", **self._at, **said},
            {"type": "response.content_part.done", **self._at, "part": self._part()},
        ]

    def item(self, status: Ended | Literal["in_progress"]) -> Json:
        content = [self._part()]
        head = {"id": self._id, "type": "message", "role": "assistant"}
        return {**head, "status": status, "content": content}

    def _part(self) -> Json:
        said = {"text": self._text, "logprobs": list(self._logprobs)}
        return {"type": "output_text", "annotations": [], **said}


class _Call:
    def __init__(self, index: int, called: Called) -> None:
        self.index = index
        self._called = called
        self._id = f"fc_{uuid.uuid4().hex}"
        self._at: Json = {"output_index": index, "item_id": self._id}
        self._arguments = ""

    def begin(self) -> list[Json]:
        item = self.item("in_progress")
        added = {"type": "response.output_item.added", "output_index": self.index, "item": item}
        return [added]

    def argue(self, text: str) -> Json:
        self._arguments += text
        return {"type": "response.function_call_arguments.delta", **self._at, "delta": text}

    def end(self) -> list[Json]:
        said = {"name": self._called.name, "arguments": self._arguments}
        return [{"type": "response.function_call_arguments.done", **self._at, **said}]

    def item(self, status: Ended | Literal["in_progress"]) -> Json:
        head = {"id": self._id, "type": "function_call", "status": status}
        called = {"call_id": self._called.call_id, "name": self._called.name}
        return {**head, **called, "arguments": self._arguments}
