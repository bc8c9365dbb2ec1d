"""Chat completions as the real API gives them, plain and cut into chunks."""

import copy
import json
import time
from collections.abc import Iterator
from itertools import zip_longest

Json = dict
USAGE = {
    "prompt_tokens": 19,
    "completion_tokens": 10,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 4,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
THINKING_S = 1.0
TEXT = "A cache keeps answers, é and 漢字 too."
CALLS = [
    {"id": "call_paris", "type": "function",
     "function": {"name": "weather", "arguments": '{"city": "Paris"}'}},
    {"id": "call_rome", "type": "function",
     "function": {"name": "weather", "arguments": '{"city": "Rome"}'}},
]  # fmt: skip
ROBOT = {"name": "Marvin", "age": 37}


def answer(asked: Json) -> Json:
    """The plain form."""
    return {
        "id": "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG",
        "object": "chat.completion",
        "created": 1741570283,
        "model": asked["model"],
        "choices": _choices(asked),
        "usage": USAGE,
        "service_tier": "default",
        "system_fingerprint": "fp_fc9f1d7035",
    }


def stream(asked: Json) -> Iterator[bytes]:
    """The same as events. In the middle `thinking` is silent for a while, `slow` until its client
    leaves, `dying` tells an error, and `cut` breaks the connection."""
    kind = kind_of(asked)
    whole = answer(asked)
    wants_usage = (asked.get("stream_options") or {}).get("include_usage")
    shared = {name: whole[name] for name in
              ("id", "created", "model", "service_tier", "system_fingerprint")}  # fmt: skip
    shared["object"] = "chat.completion.chunk"
    columns = [_deltas(choice) for choice in whole["choices"]]
    pieces = [piece for row in zip_longest(*columns) for piece in row if piece is not None]
    for number, piece in enumerate(pieces):
        if number == 2:
            yield from interruption(kind)
        if number == 2 and kind == "dying":
            yield event({"error": {"message": "The server had an error.", "type": "server_error",
                                   "param": None, "code": "overloaded"}})  # fmt: skip
            return
        chunk = {**shared, "choices": [piece], "obfuscation": "x" * (number % 7)}
        yield event({**chunk, "usage": None} if wants_usage else chunk)
    if wants_usage:
        yield event({**shared, "choices": [], "usage": USAGE, "obfuscation": "xy"})
    yield b"data: [DONE]\n\n"


def interruption(kind: str) -> Iterator[bytes]:
    """What some kinds do in the middle of their streams."""
    if kind == "slow":
        yield b""
    elif kind == "thinking":
        time.sleep(THINKING_S)
    elif kind == "cut":
        raise ConnectionAbortedError


def event(data: Json) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


def kind_of(asked: Json) -> str:
    return asked["model"].rpartition("/")[2]


def _choices(asked: Json) -> list[Json]:
    message: Json = {"role": "assistant", "content": TEXT, "refusal": None, "annotations": []}
    choice: Json = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    match kind_of(asked):
        case "tools" if asked["messages"][-1]["role"] != "tool":
            message |= {"content": None, "tool_calls": _calls(asked)}
            choice["finish_reason"] = "tool_calls"
        case "reasoning":
            message["reasoning_content"] = "The user asks. I think it over."
        case "refusal":
            message |= {"content": None, "refusal": "I cannot help with that."}
        case "cited":
            place = {"url": "https://example.org", "title": "Ex", "start_index": 0, "end_index": 7}
            message["annotations"] = [{"type": "url_citation", "url_citation": place}]
        case "logprobs":
            choice["logprobs"] = {"content": [_logprob(w) for w in _words(TEXT)], "refusal": None}
        case "structured" if not asked.get("tools"):
            message["content"] = json.dumps(ROBOT)
        case "structured":
            call = _called(asked, asked["tools"][0]["function"]["name"], ROBOT)
            message |= {"content": None, "tool_calls": [call]}
            choice["finish_reason"] = "tool_calls" if asked.get("tool_choice") is None else "stop"
    return [{**copy.deepcopy(choice), "index": index} for index in range(asked.get("n") or 1)]


def _calls(asked: Json) -> list[Json]:
    name = asked["tools"][0]["function"]["name"]
    return [{**call, "function": {**call["function"], "name": name}} for call in CALLS]


def _called(asked: Json, name: str, arguments: Json) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": "call_1", "type": "function", "function": function}


def _deltas(choice: Json) -> Iterator[Json]:
    """The pieces of one choice, in the order and form of the real API."""
    message, index = choice["message"], choice["index"]

    def piece(delta: Json, logprobs: Json | None = None) -> Json:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}

    opening = {"role": "assistant", "content": "" if message["content"] else None, "refusal": None}
    yield piece(opening)
    for word in _words(message.get("reasoning_content") or ""):
        yield piece({"reasoning_content": word})
    for number, call in enumerate(message.get("tool_calls") or ()):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield piece({"tool_calls": [{**call, "index": number, "function": function}]})
        for part in _words(call["function"]["arguments"]):
            yield piece({"tool_calls": [{"index": number, "function": {"arguments": part}}]})
    for word in _words(message["refusal"] or ""):
        yield piece({"refusal": word})
    scores = choice["logprobs"] and choice["logprobs"]["content"]
    for number, word in enumerate(_words(message["content"] or "")):
        yield piece({"content": word}, scores and {"content": [scores[number]], "refusal": None})
    if message["annotations"]:
        yield piece({"annotations": message["annotations"]})
    yield {**piece({}), "finish_reason": choice["finish_reason"]}


def _words(text: str) -> list[str]:
    return (
        [word if n == 0 else " " + word for n, word in enumerate(text.split(" "))] if text else []
    )


def _logprob(word: str) -> Json:
    other = {"token": "x", "logprob": -3.25, "bytes": [120]}
    this = {"token": word, "logprob": -0.0625, "bytes": list(word.encode())}
    return {**this, "top_logprobs": [this, other]}
