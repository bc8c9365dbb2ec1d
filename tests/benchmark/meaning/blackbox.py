"""Any cache with an OpenAI-compatible base URL, told from outside.

The cache must forward to the upstream that is planted here. Each answer names the prompt that it
was made for: one that names another prompt is a hit, and a wrong one where that is of another
class; one that names its own is a hit where the upstream did not see the prompt meanwhile. What a
cache asks behind its readers' backs (audits, refreshes) is of no account. Nothing is asked of the
cache's headers.
"""

import hashlib
import http.client
import json
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from meaning.counts import Share, table
from meaning.sets import Rows
from meaning.streams import Replay


class PlantedUpstream:
    """Answers every chat completion with the digest of its last message."""

    def __init__(self, host: str, port: int) -> None:
        upstream = self
        self.asked: list[str] = []
        """Digests of the prompts, in their order."""

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                upstream.asked.append(_digest(body["messages"][-1]["content"]))
                answer = json.dumps(_completion(body)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing is logged."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class BlackBox:
    """A cache behind a base URL."""

    def __init__(self, base_url: str, *, model: str, key: str, upstream: PlantedUpstream) -> None:
        parts = urlsplit(base_url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._connection = kind(parts.netloc, timeout=60)
        self._path = parts.path.rstrip("/") + "/chat/completions"
        self._model = model
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        self._upstream = upstream

    def ask(self, prompt: str) -> tuple[bool, str]:
        """Whether the answer came from the cache, and what it says."""
        before = len(self._upstream.asked)
        body = {"model": self._model, "messages": [{"role": "user", "content": prompt}]}
        self._connection.request("POST", self._path, json.dumps(body), self._headers)
        response = self._connection.getresponse()
        reply = json.loads(response.read())
        if response.status != 200:
            raise SystemExit(f"{self._path}: status {response.status}: {reply}")
        content = str(reply["choices"][0]["message"]["content"])
        own = _digest(prompt)
        return content != own or own not in self._upstream.asked[before:], content


def bench_black_box(box: BlackBox, streams: Rows, pairs: Rows) -> None:
    """Streams from whatever the cache holds at the start: empty it before."""
    lines = []
    for source in sorted({row["source"] for row in streams}):
        stream = sorted((r for r in streams if r["source"] == source), key=lambda row: row["seq"])
        lines.append((source, _replay(box, stream).cells()))
    table(
        "Black box, streams",
        ["requests", "hits/req", "wrong/req", "interval", "wrong/hit", "interval"],
        lines,
    )
    table("Black box, pairs: share served", ["share", "interval"], _pairs(box, pairs))


def _replay(box: BlackBox, stream: Rows) -> Replay:
    result = Replay()
    classes = {_digest(row["prompt"]): row["class"] for row in stream}
    for row in stream:
        result.requests += 1
        hit, content = box.ask(row["prompt"])
        result.hits += hit
        result.wrong += hit and classes.get(content) != row["class"]
    return result


def _pairs(box: BlackBox, pairs: Rows) -> Iterable[tuple[str, list[object]]]:
    """The answer to `a` is made first; served is `b` when it gets that very answer."""
    shares: dict[str, Share] = {}
    for row in pairs:
        label = "same" if row["same"] else "different"
        box.ask(row["a"])
        hit, content = box.ask(row["b"])
        share = shares.setdefault(f"{label} {row['source']}", Share())
        share.count(hit and content == _digest(row["a"]))
    return ((name, [share, share.interval()]) for name, share in sorted(shares.items()))


def _completion(body: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": _digest(body["messages"][-1]["content"])}
    return {
        "id": "chatcmpl-planted",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _digest(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()[:24]
