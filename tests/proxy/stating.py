"""Requests, and an upstream whose answers say how new they are and for whom they were made."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scheduling import Schedule

from index.store import ALL
from proxy.errors import UpstreamBroken, UpstreamUnreachable
from proxy.upstreams.base import UpstreamRequest, UpstreamResponse

TEXTS = ("What is a cache?", "What's a cache?", "How does a river flow?")
NAMED = (("doc:a",), ("doc:a", "doc:b"), ())
"""Tags that the upstream's answer to each text names."""
MODELS = ("test-1", "test-2")
STATED = re.compile(r"made (\d+) for ([\w.-]+)\.")


@dataclass
class Ask:
    """One request, and what must hold of its answer."""

    name: str
    text: int
    model: str
    tags: tuple[str, ...]
    stream: bool
    control: bytes
    fails: str
    """How the upstream fails, if it is asked; empty: it does not."""
    leaves: bool
    batch: tuple[int, ...] = ()
    """Texts of which the embeddings are asked for, instead of an answer in chat."""
    hard: dict[str, int] = field(default_factory=dict)
    """What had been purged when it began, or when the upstream failed, with the numbers of those
    purges."""
    soft: dict[str, int] = field(default_factory=dict)
    outcome: str = ""
    detail: str = ""
    """Why it was given a stale answer."""
    status: int = 0
    body: bytes = b""

    @property
    def waits_for_the_upstream(self) -> bool:
        """The upstream is never asked for a refresh behind the client's back."""
        return self.model == "test-2" and not self.control.startswith(b"max-stale")

    def depends_on(self) -> set[str]:
        """Tags of an answer made for this."""
        own = {ALL, f"model:{self.model}"}
        if not self.batch:
            own.add(f"text:{self.model}:{self.text}")
        return {*own, *self.tags, *NAMED[self.text]}

    def head(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"authorization", b"Bearer sk-one"), (b"x-request-id", self.name.encode())]
        if self.tags:
            headers.append((b"x-cache-tags", ",".join(self.tags).encode()))
        return [*headers, (b"cache-control", self.control)] if self.control else headers

    def stated(self) -> list[tuple[int, str]]:
        """What the parts of the answer say: when they were made, and for whom. Nothing where it did
        not come so far."""
        text = self.body.decode() if self.status < 400 else ""
        if self.batch:
            vectors = [one["embedding"] for one in json.loads(text)["data"]] if text else []
            return [(int(made), f"r{int(maker)}") for made, maker in vectors]
        if self.stream:
            events = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
            choices = [choice for e in events for choice in json.loads(e).get("choices", ())]
            text = "".join(one["delta"].get("content") or "" for one in choices)
        return [(int(made), maker) for made, maker in STATED.findall(text)]


class Truth(Protocol):
    """What the upstream knows of the world."""

    schedule: Schedule
    num_purges: int
    hard: dict[str, int]
    soft: dict[str, int]
    asks: dict[str, Ask]


class Stating:
    """An upstream whose answers say how new they are."""

    name = "main"
    identity = "main"
    models = MODELS

    def __init__(self, world: Truth) -> None:
        self._world = world

    @property
    def servers(self):
        return (self,)

    async def start(self) -> None:
        """Nothing to start."""

    async def state(self) -> str:
        return "ready"

    async def close(self) -> None:
        """Nothing to close."""

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        ask = self._world.asks[request.request_id]
        pause = self._world.schedule.pause
        await pause("before send")
        made = self._world.num_purges
        await pause("after send")
        if ask.fails in ("refused", "500", "429") and ask.waits_for_the_upstream:
            # What is served instead was looked up after this.
            ask.hard, ask.soft = dict(self._world.hard), dict(self._world.soft)
        if ask.fails == "refused":
            raise UpstreamUnreachable("refused", upstream="main")
        status = int(ask.fails) if ask.fails.isdigit() else 200
        words = f"made {made} for ", f"{ask.name}."
        streams = ask.stream and status == 200
        if status != 200:
            pieces = [b'{"error": {"message": "no", "type": "server_error"}}']
        elif ask.batch:
            assert isinstance(request.body, bytes)
            asked = json.loads(request.body)["input"]
            pieces = _vectors([float(made), float(ask.name[1:])], ask.model, len(asked))
        else:
            pieces = (_stream if streams else _plain)(words, ask.model)
        kind = b"text/event-stream" if streams else b"application/json"
        headers = [(b"content-type", kind)]
        if NAMED[ask.text]:
            headers.append((b"cache-tag", ",".join(NAMED[ask.text]).encode()))
        return UpstreamResponse(
            upstream="main",
            status=status,
            headers=tuple(headers),
            body=self._body(pieces, breaks=ask.fails == "broken"),
        )

    async def _body(self, pieces: list[bytes], *, breaks: bool) -> AsyncIterator[bytes]:
        for number, piece in enumerate(pieces):
            await self._world.schedule.pause("before a piece")
            if breaks and number == len(pieces) - 1:
                raise UpstreamBroken("broken", upstream="main")
            yield piece
        await self._world.schedule.pause("after the last piece")


def _plain(words: Sequence[str], model: str) -> list[bytes]:
    message = {"role": "assistant", "content": "".join(words)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    body = _json("chat.completion", model=model, choices=[choice], usage=usage)
    return [body[:20], body[20:]]


def _vectors(vector: list[float], model: str, count: int) -> list[bytes]:
    data = [{"object": "embedding", "index": at, "embedding": vector} for at in range(count)]
    usage = {"prompt_tokens": count, "total_tokens": count}
    return [json.dumps({"object": "list", "model": model, "data": data, "usage": usage}).encode()]


def _stream(words: Sequence[str], model: str) -> list[bytes]:
    deltas = [{"role": "assistant", "content": ""}, *({"content": word} for word in words)]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    events = [_json("chat.completion.chunk", model=model, choices=[choice]) for choice in choices]
    return [b"data: " + event + b"\n\n" for event in (*events, b"[DONE]")]


def _json(kind: str, **more) -> bytes:
    base = {"id": "chatcmpl-1", "object": kind, "created": 1700000000}
    return json.dumps({**base, **more}).encode()
