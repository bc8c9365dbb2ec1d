"""An upstream that costs next to nothing: a bare ASGI application in OpenAI's wire format.

    python tests/benchmark/mock_upstream.py PORT [--pace-ms 2]

Streams send 64 content chunks, one every `--pace-ms`, as a model server does.
"""

import argparse
import asyncio
import json

import uvicorn

NUM_CHUNKS = 64


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    chunk = {
        "id": "chatcmpl-mock",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "mock",
        "choices": [choice],
    }
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


USAGE = {"prompt_tokens": 20, "completion_tokens": NUM_CHUNKS, "total_tokens": 20 + NUM_CHUNKS}
PLAIN = json.dumps(
    {
        "id": "chatcmpl-mock",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "mock",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "word " * NUM_CHUNKS},
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }
).encode()
PIECES = [
    _chunk({"role": "assistant", "content": ""}),
    *[_chunk({"content": "word "}) for _ in range(NUM_CHUNKS)],
    _chunk({}, "stop"),
]
LAST = (
    b'data: {"id":"chatcmpl-mock","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"mock","choices":[],"usage":'
    + json.dumps(USAGE, separators=(",", ":")).encode()
    + b"}\n\n"
)
DONE = b"data: [DONE]\n\n"


class MockUpstream:
    """Answers every POST; `"stream": true` in the body makes it a stream."""

    def __init__(self, pace_s: float) -> None:
        self.pace_s = pace_s

    async def __call__(self, scope, receive, send) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if not json.loads(body or b"{}").get("stream"):
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(PLAIN)).encode()),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": PLAIN})
            return
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in PIECES:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            if self.pace_s:
                await asyncio.sleep(self.pace_s)
        await send({"type": "http.response.body", "body": LAST, "more_body": True})
        await send({"type": "http.response.body", "body": DONE})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--pace-ms", type=float, default=2.0)
    arguments = parser.parse_args()
    uvicorn.run(
        MockUpstream(arguments.pace_ms / 1000),
        host="127.0.0.1",
        port=arguments.port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
