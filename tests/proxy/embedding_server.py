"""A scripted embeddings server: the vector of a text is a function of the text."""

import asyncio
import base64
import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from misbehaving import Request, plain

Answer = Callable[[dict], bytes]


def vector_of(piece: str | list[int], *, model: str = "test-1", dimensions: int = 4) -> list[float]:
    """Numbers that float32 holds exactly."""
    digest = hashlib.sha256(json.dumps([model, piece]).encode()).digest()
    return [byte / 256 - 0.5 for byte in digest[:dimensions]]


def in_base64(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


@dataclass
class Embedder:
    """Answers requests; `asked` are the inputs of each, as lists."""

    model: str = "test-1"
    num_tokens: Callable[[object], int] = lambda piece: len(piece)
    asked: list[list] = field(default_factory=list)
    bodies: list[dict] = field(default_factory=list)
    go_on: asyncio.Event | None = None
    headers: tuple[str, ...] = ()
    status: str = "200 OK"

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        body = json.loads(request.body)
        given = body["input"]
        alone = isinstance(given, str) or isinstance(given[0], int)
        pieces = [given] if alone else given
        self.asked.append(pieces)
        self.bodies.append(body)
        if self.go_on is not None:
            await self.go_on.wait()
        answer = self.answer(body, pieces)
        writer.write(plain(answer, status=self.status, headers=self.headers))

    def answer(self, body: dict, pieces: list) -> bytes:
        dimensions = body.get("dimensions", 4)
        vectors = [vector_of(piece, model=self.model, dimensions=dimensions) for piece in pieces]
        spelled = [in_base64(v) if body.get("encoding_format") == "base64" else v for v in vectors]
        data = [
            {"object": "embedding", "index": index, "embedding": one}
            for index, one in enumerate(spelled)
        ]
        tokens = sum(map(self.num_tokens, pieces))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        whole = {"object": "list", "data": data, "model": self.model, "usage": usage}
        return json.dumps(whole).encode()
