"""Responses of the bundled engine (API reference, "Responses")."""

import functools
import itertools
import uuid
from collections.abc import Callable, Iterable, Sequence

import msgspec

from proxy.upstreams.local.answer import Choice, Json, TokenDetail
from proxy.upstreams.local.calls import Heard, Reader
from proxy.upstreams.local.output import Ended, Output
from proxy.upstreams.local.reading import Reading
from proxy.upstreams.local.response_body import ResponseBody, TextOptions
from proxy.upstreams.local.tools import TextFormat

_CUT = "length"
"""The engine's word for an answer that had to end."""


class ResponseForm:
    """`response` and its events, the last of which carries it whole. Has one choice. See
    `proxy.upstreams.local.answer.AnswerForm`."""

    closing = b""

    def __init__(
        self,
        body: ResponseBody,
        *,
        model: str,
        created: int,
        reader: Callable[[], Reader] | None,
    ) -> None:
        """`reader`: where there are tools; first called with the first text."""
        self._head = _head(body, model=model, created=created)
        self._reader = reader
        self._output = Output()
        self._numbers = itertools.count()
        self._ended: Ended = "completed"

    def frame(self, chunk: Json) -> bytes:
        kind: str = chunk["type"]
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(chunk))

    def begin(self, index: int) -> list[Json]:
        begun = self._head | {"status": "in_progress", "usage": None}
        kinds = ("response.created", "response.in_progress")
        return self._numbered({"type": kind, "response": begun} for kind in kinds)

    def pieces(self, index: int, text: str, logprobs: Sequence[TokenDetail] | None) -> list[Json]:
        self._reading.hold(logprobs)
        return self._numbered(self._hear(self._reading.push(text)))

    def end(self, index: int, finish_reason: str) -> list[Json]:
        if finish_reason == _CUT:
            self._ended = "incomplete"
        last = self._hear(self._reading.close())
        return self._numbered([*last, *self._output.close(self._ended)])

    def usage(self, usage: Json) -> Json:
        kind = f"response.{self._ended}"
        (last,) = self._numbered([{"type": kind, "response": self._whole(usage)}])
        return last

    def whole(self, choices: Sequence[Choice], usage: Json) -> Json:
        (choice,) = choices
        self.pieces(choice.index, choice.text, choice.logprobs)
        self.end(choice.index, choice.finish_reason)
        return self._whole(usage)

    @functools.cached_property
    def _reading(self) -> Reading:
        return Reading(self._reader)

    def _hear(self, heard: Iterable[Heard]) -> list[Json]:
        return [event for one in heard for event in self._output.hear(one, self._reading.release())]

    def _whole(self, usage: Json) -> Json:
        cut = {"reason": "max_output_tokens"} if self._ended == "incomplete" else None
        return self._head | {
            "status": self._ended,
            "incomplete_details": cut,
            "output": self._output.items,
            "usage": _usage(usage),
        }

    def _numbered(self, events: Iterable[Json]) -> list[Json]:
        return [{**event, "sequence_number": next(self._numbers)} for event in events]


def _head(body: ResponseBody, *, model: str, created: int) -> Json:
    """A response before there is an answer. It says back what was asked, with the API's defaults;
    `store` is what is true here."""
    text = TextOptions(format=(body.text and body.text.format) or TextFormat())
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "model": model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": msgspec.to_builtins(text),
        "tool_choice": msgspec.to_builtins(body.tool_choice or "auto"),
        "tools": msgspec.to_builtins(body.tools or []),
        "top_logprobs": body.top_logprobs or 0,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
        "usage": None,
        "metadata": body.metadata or {},
    }


def _usage(usage: Json) -> Json:
    """In the words of this API. No model here tells its reasoning apart."""
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": usage["prompt_tokens_details"],
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
