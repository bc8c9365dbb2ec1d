"""Certificates and forward proxies on the way to an upstream, on real sockets.

The certificates are made by the test with `openssl`.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from certificates import OPENSSL, Certificates, made, server_context
from misbehaving import answering, plain, serving
from running import completion, running

from proxy.errors import ConfigError

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  u: {{base_url: "{url}/v1", tls: {{{tls}}}}}
routes:
  - {{to: u, retries: 0}}
"""

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="there is no openssl to make certificates")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return made(tmp_path_factory.mktemp("certificates"))


def config(url: str, **tls: str) -> str:
    return CONFIG.format(url=url, tls=", ".join(f"{name}: {value}" for name, value in tls.items()))


@pytest.fixture
async def server(certificates: Certificates):
    """Over TLS; whoever comes must show a certificate of the authority."""
    context = server_context(certificates, asks_client=True)
    async with serving(answering(plain(completion())), tls=context) as server:
        yield server


@pytest.fixture
async def open_server(certificates: Certificates):
    """Over TLS."""
    context = server_context(certificates)
    async with serving(answering(plain(completion())), tls=context) as server:
        yield server


async def test_an_own_authority_and_a_client_certificate_open_the_way(
    tmp_path, certificates, server
):
    text = config(
        server.url,
        ca=certificates.file("ca.pem"),
        cert=certificates.file("client.pem"),
        key=certificates.file("client.key"),
    )
    async with running(text, tmp_path) as proxy:
        assert (await proxy.ask()).status_code == 200
    assert len(server.requests) == 1


async def test_a_certificate_and_its_key_may_stand_in_one_file(tmp_path, certificates, server):
    both = tmp_path / "both.pem"
    parts = [Path(certificates.file(f"client.{kind}")).read_text() for kind in ("key", "pem")]
    both.write_text("".join(parts))
    text = config(server.url, ca=certificates.file("ca.pem"), cert=str(both))
    async with running(text, tmp_path) as proxy:
        assert (await proxy.ask()).status_code == 200


async def test_without_the_client_certificate_the_server_refuses(tmp_path, certificates, server):
    async with running(config(server.url, ca=certificates.file("ca.pem")), tmp_path) as proxy:
        assert (await proxy.ask()).status_code in (502, 503)
    assert server.requests == []


async def test_an_authority_that_is_not_named_is_not_trusted(tmp_path, open_server):
    async with running(config(open_server.url), tmp_path) as proxy:
        answer = await proxy.ask()
    assert answer.status_code == 503
    assert "its certificate is not trusted" in answer.json()["error"]["message"]
    assert open_server.requests == []


async def test_the_check_can_be_turned_off(tmp_path, open_server):
    async with running(config(open_server.url, verify="false"), tmp_path) as proxy:
        assert (await proxy.ask()).status_code == 200


async def test_files_that_hold_no_certificate_stop_the_start(tmp_path):
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("not a certificate")
    with pytest.raises(ConfigError, match=r"upstreams\.u\.tls"):
        async with running(config("https://127.0.0.1:1", ca=str(wrong)), tmp_path):
            pass


# Forward proxies


@dataclass
class ForwardProxy:
    url: str = ""
    heads: list[str] = field(default_factory=list)
    """What it was asked for, the request line and its headers."""


@contextlib.asynccontextmanager
async def forward_proxy(*, refusal: bytes = b"") -> AsyncIterator[ForwardProxy]:
    """Speaks CONNECT, and leads everyone to where they ask for."""
    proxy = ForwardProxy()
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            await close(writer)

    async def close(writer: asyncio.StreamWriter) -> None:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        proxy.heads.append(head)
        if refusal:
            writer.write(refusal)
            await close(writer)
            return
        host, port = head.split()[1].rsplit(":", 1)
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(tunnel(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.url = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def test_an_upstream_is_reached_through_the_proxy_of_the_environment(
    tmp_path, certificates, open_server, monkeypatch
):
    async with forward_proxy() as middle:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@{middle.url}")
        text = config(open_server.url, ca=certificates.file("ca.pem"))
        async with running(text, tmp_path) as proxy:
            assert (await proxy.ask()).status_code == 200
            assert (await proxy.ask("another")).status_code == 200
        (head,) = middle.heads
    host = open_server.url.removeprefix("https://")
    assert head.startswith(f"CONNECT {host} HTTP/1.1\r\n")
    credential = base64.b64encode(b"me:secret").decode()
    assert f"proxy-authorization: basic {credential}".lower() in head.lower()
    assert "bearer" not in head.lower()
    assert open_server.requests[0].header("proxy-authorization") is None


async def test_no_proxy_leads_past_it(tmp_path, certificates, open_server, monkeypatch):
    async with forward_proxy() as middle:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{middle.url}")
        monkeypatch.setenv("NO_PROXY", "example.com,127.0.0.1")
        text = config(open_server.url, ca=certificates.file("ca.pem"))
        async with running(text, tmp_path) as proxy:
            assert (await proxy.ask()).status_code == 200
        assert middle.heads == []


async def test_a_proxy_that_refuses_is_an_upstream_that_cannot_be_reached(
    tmp_path, certificates, open_server, monkeypatch
):
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
    async with forward_proxy(refusal=refusal) as middle:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@{middle.url}")
        text = config(open_server.url, ca=certificates.file("ca.pem"))
        async with running(text, tmp_path) as proxy:
            answer = await proxy.ask()
    assert answer.status_code == 503
    assert "the proxy says 407" in answer.json()["error"]["message"]
    assert "secret" not in answer.text
