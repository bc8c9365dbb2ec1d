"""Chat completions of the bundled engine (API reference, "Chat Completions")."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import assert_never

from proxy.upstreams.local.answer import DONE, Choice, Json, TokenDetail, data_frame
from proxy.upstreams.local.calls import Argued, Called, Heard, Reader, Said
from proxy.upstreams.local.reading import Reading


class ChatForm:
    """`chat.completion` and its chunks. See `proxy.upstreams.local.answer.AnswerForm`."""

    closing = DONE

    def __init__(self, *, model: str, created: int, reader: Callable[[], Reader] | None) -> None:
        """`reader`: of one choice, where there are tools; first called with the first text."""
        self._head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": created, "model": model}
        self._reader = reader
        self._choices: dict[int, Reading] = defaultdict(lambda: Reading(reader))

    def frame(self, chunk: Json) -> bytes:
        return data_frame(chunk)

    def begin(self, index: int) -> list[Json]:
        content = "" if self._reader is None else None
        return [self._chunk(index, {"role": "assistant", "content": content})]

    def pieces(self, index: int, text: str, logprobs: Sequence[TokenDetail] | None) -> list[Json]:
        choice = self._choices[index]
        choice.hold(logprobs)
        return [self._heard(index, heard) for heard in choice.push(text)]

    def end(self, index: int, finish_reason: str) -> list[Json]:
        choice = self._choices[index]
        last = [self._heard(index, heard) for heard in choice.close()]
        return [*last, self._chunk(index, {}, None, choice.finish_reason(finish_reason))]

    def usage(self, usage: Json) -> Json:
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Choice], usage: Json) -> Json:
        written = [self._written(choice) for choice in choices]
        return {**self._head, "object": "chat.completion", "choices": written, "usage": usage}

    def _written(self, choice: Choice) -> Json:
        reading = self._choices[choice.index]
        heard = [*reading.push(choice.text), *reading.close()]
        text = "".join(one.text for one in heard if isinstance(one, Said))
        message: Json = {"role": "assistant", "content": text, "refusal": None}
        if self._reader is not None:
            message["content"] = text or None
        if calls := _calls(heard):
            message["tool_calls"] = calls
        return {
            "index": choice.index,
            "message": message,
            "logprobs": _logprobs(None if calls else choice.logprobs),
            "finish_reason": reading.finish_reason(choice.finish_reason),
        }

    def _heard(self, index: int, heard: Heard) -> Json:
        match heard:
            case Said(text=text):
                return self._chunk(index, {"content": text}, self._choices[index].release())
            case Called():
                self._choices[index].release()
                call = {"index": heard.number, **_begun(heard)}
            case Argued():
                call = {"index": heard.number, "function": {"arguments": heard.text}}
            case _:
                assert_never(heard)
        return self._chunk(index, {"tool_calls": [call]})

    def _chunk(
        self,
        index: int,
        delta: Json,
        logprobs: Sequence[TokenDetail] | None = None,
        finish_reason: str | None = None,
    ) -> Json:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": _logprobs(logprobs),
            "finish_reason": finish_reason,
        }
        head = {**self._head, "object": "chat.completion.chunk"}
        return head | {"choices": [choice], "usage": None}


def _calls(heard: Sequence[Heard]) -> list[Json]:
    calls: list[Json] = []
    for one in heard:
        match one:
            case Called():
                calls.append(_begun(one))
            case Argued(number=number, text=text):
                calls[number]["function"]["arguments"] += text
            case Said():
                pass
    return calls


def _begun(called: Called) -> Json:
    function = {"name": called.name, "arguments": ""}
    return {"id": called.call_id, "type": "function", "function": function}


def _logprobs(details: Sequence[TokenDetail] | None) -> Json | None:
    return None if details is None else {"content": details, "refusal": None}
