"""The rest of the API: legacy completions, embeddings, and what is only passed through."""

import base64
import hashlib
import json
import struct
from collections.abc import Iterator
from email.parser import BytesParser
from urllib.parse import parse_qs

Json = dict
DIMENSIONS = 8
JSON = "application/json"
SPEECH = bytes(range(256)) * 1024
"""What a spoken answer might be: bytes that are no text."""


def answer(method: str, target: str, headers: dict[str, str], body: bytes):
    """Body (None: there is no such path) and content type."""
    path, _, query = target.partition("?")
    match method, path.removeprefix("/v1"):
        case "POST", "/completions":
            asked = json.loads(body)
            if asked.get("stream"):
                return _text_stream(asked), "text/event-stream"
            return _json(_text(asked))
        case "POST", "/embeddings":
            return _json(_embeddings(json.loads(body)))
        case "POST", "/files":
            return _json(_file(headers["content-type"], body))
        case "GET", "/files":
            return _json(_page(parse_qs(query)))
        case "GET", "/files/file-1/content":
            return SPEECH, "application/octet-stream"
        case "POST", "/audio/transcriptions":
            return _json({"text": f"heard {len(_upload(headers['content-type'], body)[1])} bytes"})
        case "POST", "/audio/speech":
            return iter([SPEECH[:100], SPEECH[100:]]), "audio/mpeg"
        case "DELETE", "/files/file-1":
            return _json({"id": "file-1", "object": "file", "deleted": True})
    return None, ""


def vector(text: str) -> list[float]:
    """What the upstream takes a text for; numbers that a float32 holds exactly."""
    digest = hashlib.sha256(text.encode()).digest()[:DIMENSIONS]
    return [byte / 256 for byte in digest]


def _json(value: Json) -> tuple[bytes, str]:
    return json.dumps(value).encode(), JSON


def _text(asked: Json) -> Json:
    texts = [asked["prompt"]] if isinstance(asked["prompt"], str) else asked["prompt"]
    choices = [
        {"text": f" echo of {text}", "index": n, "logprobs": None, "finish_reason": "stop"}
        for n, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    return {"id": "cmpl-1", "object": "text_completion", "created": 1741570283,
            "model": asked["model"], "choices": choices, "usage": usage}  # fmt: skip


def _text_stream(asked: Json) -> Iterator[bytes]:
    whole = _text(asked)
    usage = whole.pop("usage")
    for choice in whole.pop("choices"):
        for text, reason in ((choice["text"], None), ("", "stop")):
            piece = {**choice, "text": text, "finish_reason": reason}
            yield b"data: " + json.dumps({**whole, "choices": [piece]}).encode() + b"\n\n"
    if (asked.get("stream_options") or {}).get("include_usage"):
        yield b"data: " + json.dumps({**whole, "choices": [], "usage": usage}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _embeddings(asked: Json) -> Json:
    inputs = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
    if inputs and isinstance(inputs[0], int):
        inputs = [inputs]
    vectors = [vector(item if isinstance(item, str) else json.dumps(item)) for item in inputs]
    if asked.get("encoding_format") == "base64":
        vectors = [base64.b64encode(struct.pack(f"<{len(v)}f", *v)).decode() for v in vectors]
    data = [{"object": "embedding", "index": n, "embedding": v} for n, v in enumerate(vectors)]
    usage = {"prompt_tokens": 3 * len(inputs), "total_tokens": 3 * len(inputs)}
    return {"object": "list", "data": data, "model": asked["model"], "usage": usage}


def _file(kind: str, body: bytes) -> Json:
    name, content = _upload(kind, body)
    return {"id": "file-1", "object": "file", "bytes": len(content), "created_at": 1741570283,
            "filename": name, "purpose": "assistants", "status": "processed",
            "sha256": hashlib.sha256(content).hexdigest()}  # fmt: skip


def _page(query: dict[str, list[str]]) -> Json:
    """Two pages of two files."""
    first = 3 if query.get("after") == ["file-2"] else 1
    files = [
        {"id": f"file-{n}", "object": "file", "bytes": n, "created_at": 1, "filename": f"{n}.txt",
         "purpose": "assistants", "status": "processed"} for n in (first, first + 1)
    ]  # fmt: skip
    return {"object": "list", "data": files, "has_more": first == 1,
            "first_id": files[0]["id"], "last_id": files[-1]["id"]}  # fmt: skip


def _upload(kind: str, body: bytes) -> tuple[str, bytes]:
    """Name and bytes of the file in a multipart form."""
    form = BytesParser().parsebytes(f"content-type: {kind}\r\n\r\n".encode() + body)
    for part in form.get_payload():
        if part.get_filename():
            return part.get_filename(), part.get_payload(decode=True)
    raise AssertionError("no file in the form")
