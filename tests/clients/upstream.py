"""A server that speaks OpenAI's API as the real one does, on a real socket, by scripts.

What a request gets is chosen by its model, after the last slash: `chat`, `tools`, `slow`, …
"""

import json
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import chats
import responses
import surfaces

Json = dict
HEADERS = {
    "openai-organization": "org-upstream",
    "openai-processing-ms": "123",
    "openai-version": "2020-10-01",
    "x-ratelimit-limit-requests": "5000",
    "x-ratelimit-remaining-requests": "4999",
    "x-ratelimit-reset-requests": "12ms",
    "x-request-id": "req_of_the_upstream",
    "set-cookie": "__cf_bm=secret; path=/",
}
"""What the real API sends with every answer."""


@dataclass
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    client_left: threading.Event = field(default_factory=threading.Event)
    """The connection was closed while the answer was under way."""

    @property
    def json(self) -> Json:
        return json.loads(self.body)


@dataclass
class Answer:
    """`body` is sent as it is; pieces of an iterator are each flushed in a chunk of their own."""

    body: bytes | Iterator[bytes] = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Upstream:
    """The running server; `close` it in the end."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._failures: dict[str, list[Answer]] = {}
        upstream = self

        class Handler(_Handler):
            def respond(self, asked: Asked) -> Answer:
                upstream.asked.append(asked)
                return upstream._answer(asked)

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def asks(self, marker: str) -> list[Asked]:
        """The requests whose body has this text."""
        return [asked for asked in self.asked if marker.encode() in asked.body]

    def fail(self, marker: str, *answers: Answer) -> None:
        """Requests that have this text get these answers first, one each."""
        self._failures[marker] = list(answers)

    def _answer(self, asked: Asked) -> Answer:
        for marker, answers in self._failures.items():
            if answers and marker.encode() in asked.body:
                return answers.pop(0)
        path = asked.path.partition("?")[0]
        if path == "/v1/chat/completions" and asked.method == "POST":
            return _json_or_stream(chats.answer, chats.stream, asked)
        if path == "/v1/responses" and asked.method == "POST":
            return _json_or_stream(responses.answer, responses.stream, asked)
        body, kind = surfaces.answer(asked.method, asked.path, asked.headers, asked.body)
        if body is None:
            return error(404, f"Invalid URL ({asked.method} {path})")
        return Answer(body, headers={"content-type": kind})


def error(status: int, message: str, *, code: str | None = None, **headers: str) -> Answer:
    """An error in OpenAI's shape; underscores in the names of headers stand for hyphens."""
    kind = "invalid_request_error" if status < 429 else "server_error"
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(json.dumps(body).encode(), status, {"content-type": "application/json", **more})


def _json_or_stream(answer, stream, asked: Asked) -> Answer:
    if asked.json.get("stream"):
        kind = "text/event-stream; charset=utf-8"
        return Answer(stream(asked.json), headers={"content-type": kind})
    body = json.dumps(answer(asked.json), indent=2).encode()
    return Answer(body, headers={"content-type": "application/json"})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def respond(self, asked: Asked) -> Answer:
        raise NotImplementedError

    def do_POST(self) -> None:
        self._exchange()

    def do_GET(self) -> None:
        self._exchange()

    def do_DELETE(self) -> None:
        self._exchange()

    def _exchange(self) -> None:
        asked = Asked(self.command, self.path, self._lower(), self._body())
        answer = self.respond(asked)
        self.send_response(answer.status)
        for name, value in {**HEADERS, **answer.headers}.items():
            self.send_header(name, value)
        if isinstance(answer.body, bytes):
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
        else:
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self._stream(answer.body, asked)

    def _stream(self, pieces: Iterator[bytes], asked: Asked) -> None:
        try:
            for piece in pieces:
                if not piece:  # a pause, in which the client may leave
                    self._await_departure(asked)
                    continue
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
            asked.client_left.set()

    def _await_departure(self, asked: Asked) -> None:
        readable, _, _ = select.select([self.connection], [], [], 30)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError

    def _lower(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def log_message(self, *_arguments) -> None:
        pass
