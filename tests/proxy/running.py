"""A whole proxy on real sockets in the test's own event loop, and upstreams that tests script."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from ssl import PROTOCOL_TLS_CLIENT, SSLContext

import httpx
from misbehaving import LAST_CHUNK, STREAM, Request, chunked, plain
from openai import AsyncOpenAI

from proxy.app import Proxy
from proxy.processes.lifetime import Certificates, Ports, Stop, serve
from proxy.processes.server import bind
from proxy.settings.address import Tcp
from proxy.settings.file import load
from proxy.storing import open_store

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"{options}}}
policies:
  standard: {{ttl: 1h{policy}}}
routes:
  - {{match: {{model: "uncached"}}, to: main, cache: none}}
  - {{match: {{model: "test-*"}}, to: main, cache: standard, retries: 0}}
  - {{match: {{path: "/v1/files*"}}, to: main}}
"""


@dataclass
class Running:
    """URLs without `/v1`, and clients that are closed with it."""

    url: str
    admin_url: str
    proxy: Proxy
    http: httpx.AsyncClient

    def openai(self, key: str = "sk-one") -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    async def ask(
        self, text: str = "What is a cache?", *, key: str = "sk-one", stream: bool = False, **more
    ) -> httpx.Response:
        """One chat request, answered whole; `more` goes into the body, but for `headers`."""
        headers = {"authorization": f"Bearer {key}", **more.pop("headers", {})}
        body = {"model": "test-1", "messages": [{"role": "user", "content": text}], **more}
        if stream:
            body["stream"] = True
        return await self.http.post(f"{self.url}/v1/chat/completions", json=body, headers=headers)

    async def purge(self, **what) -> dict:
        answer = await self.http.post(f"{self.admin_url}/cache/purge", json=what)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextlib.asynccontextmanager
async def running(config: str, folder: Path) -> AsyncIterator[Running]:
    """Serve a config (YAML) until the end of the block."""
    path = folder / "test.yaml"
    path.write_text(config)
    loaded = load(path, environ={})
    proxy = Proxy(loaded, store=await open_store(loaded.store), say=lambda _: None)
    ready = asyncio.Event()
    proxy.start(when_ready=ready.set)
    stop = Stop()
    loopback = Tcp(host="127.0.0.1", port=0)
    ports = Ports(data=[bind(loopback)], admin=bind(loopback))
    certificates = Certificates(loaded)
    serving = asyncio.create_task(serve(proxy, ports, certificates, stop=stop))
    try:
        # No certificate is looked at here, and reading all of the machine's takes a while.
        async with httpx.AsyncClient(timeout=60, verify=SSLContext(PROTOCOL_TLS_CLIENT)) as http:
            await ready.wait()
            url, admin_url = ports.data[0].url(tls=False), ports.admin.url(tls=False)
            yield Running(url=url, admin_url=admin_url, proxy=proxy, http=http)
    finally:
        stop(signal.SIGINT)
        await serving
        await proxy.close()


def completion(text: str = "An answer.", *, model: str = "test-1", **more) -> bytes:
    """A plain chat completion."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        "logprobs": None,
        **more,
    }
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1700000000,
            "model": model,
            "choices": [choice],
            "usage": usage,
        }
    ).encode()


def chunk(delta: dict, *, finish: str | None = None) -> bytes:
    """A chunk of a chat stream, framed and chunked."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "test-1",
        "choices": [choice],
    }
    return chunked(b"data: " + json.dumps(body).encode() + b"\n\n")


USAGE_CHUNK = chunked(
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"test-1","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,'
    b'"total_tokens":8}}\n\n'
)
DONE = chunked(b"data: [DONE]\n\n") + LAST_CHUNK
BEGIN = STREAM + chunk({"role": "assistant", "content": ""})
END = chunk({}, finish="stop") + USAGE_CHUNK + DONE


def wants_stream(request: Request) -> bool:
    return json.loads(request.body).get("stream") is True


def stream_of(*words: str) -> bytes:
    """A whole well-behaved stream."""
    return BEGIN + b"".join(chunk({"content": word}) for word in words) + END


async def good(request: Request, writer: asyncio.StreamWriter) -> None:
    """An upstream that answers plainly or streamed, as asked."""
    writer.write(stream_of("An ", "answer.") if wants_stream(request) else plain(completion()))
