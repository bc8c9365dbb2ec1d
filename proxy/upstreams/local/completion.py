"""Legacy completions of the bundled engine (API reference, "Completions")."""

import uuid
from collections import Counter
from collections.abc import Sequence

from proxy.upstreams.local.answer import DONE, Choice, Json, TokenDetail, data_frame


class CompletionForm:
    """`text_completion`, streamed under the same name. See
    `proxy.upstreams.local.answer.AnswerForm`."""

    closing = DONE

    def __init__(self, *, model: str, created: int) -> None:
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": created,
            "model": model,
        }
        self._lengths: Counter[int] = Counter()
        """Of the text so far, by choice."""

    def frame(self, chunk: Json) -> bytes:
        return data_frame(chunk)

    def begin(self, index: int) -> list[Json]:
        return []

    def pieces(self, index: int, text: str, logprobs: Sequence[TokenDetail] | None) -> list[Json]:
        written = _logprobs(logprobs, self._lengths[index])
        self._lengths[index] += len(text)
        return [self._chunk(_choice(index, text, written, None))]

    def end(self, index: int, finish_reason: str) -> list[Json]:
        return [self._chunk(_choice(index, "", None, finish_reason))]

    def usage(self, usage: Json) -> Json:
        return {**self._head, "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Choice], usage: Json) -> Json:
        written = [
            _choice(c.index, c.text, _logprobs(c.logprobs, 0), c.finish_reason) for c in choices
        ]
        return {**self._head, "choices": written, "usage": usage}

    def _chunk(self, choice: Json) -> Json:
        return self._head | {"choices": [choice], "usage": None}


def _choice(index: int, text: str, logprobs: Json | None, finish_reason: str | None) -> Json:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}


def _logprobs(details: Sequence[TokenDetail] | None, offset: int) -> Json | None:
    """The older shape: lists side by side. `offset`: characters before the first token. The
    chosen token is always among the likeliest ones, which may be one more for it."""
    if details is None:
        return None
    offsets = []
    for detail in details:
        offsets.append(offset)
        offset += len(detail.token)
    return {
        "tokens": [detail.token for detail in details],
        "token_logprobs": [detail.logprob for detail in details],
        "top_logprobs": [
            {one.token: one.logprob for one in (detail, *detail.top_logprobs)} for detail in details
        ],
        "text_offset": offsets,
    }
