"""What the ports listen on: several addresses, IPv6, Unix sockets, TLS. Over sockets."""

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from misbehaving import serving
from proxyprocess import serving_process
from running import good

OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="there is no openssl here")
BODY = {"model": "test-1", "messages": [{"role": "user", "content": "?"}]}

CONFIG = """
listen: {listen}
admin: {{listen: "127.0.0.1:0"{admin}}}
{more}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
routes:
  - {{match: {{model: "test-*"}}, to: main}}
"""


def config_of(upstream: str, *, listen="127.0.0.1:0", admin: str = "", more: str = "") -> str:
    return CONFIG.format(upstream=upstream, listen=listen, admin=admin, more=more)


def make_certificate(folder: Path, name: str, *, passphrase: str = "") -> None:
    """Self-signed, for 127.0.0.1: `cert.pem` and `key.pem`."""
    locked = ["-passout", f"pass:{passphrase}"] if passphrase else ["-nodes"]
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         *locked, "-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", f"/CN={name}",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder / "cert.pem")


async def name_shown(url: str, folder: Path) -> str:
    """The certificate's common name, over a new connection."""
    parts = httpx.URL(url)
    _, writer = await asyncio.open_connection(parts.host, parts.port, ssl=trusting(folder))
    certificate = writer.get_extra_info("peercert")
    writer.close()
    await writer.wait_closed()
    return dict(pair for part in certificate["subject"] for pair in part)["commonName"]


@needs_openssl
async def test_both_ports_speak_tls_and_a_reload_takes_a_renewed_certificate(tmp_path):
    make_certificate(tmp_path, "first")
    tls = f'{{cert: "{tmp_path}/cert.pem", key: "{tmp_path}/key.pem"}}'
    async with (
        serving(good) as upstream,
        serving_process(
            config_of(upstream.url, admin=f", tls: {tls}", more=f"tls: {tls}"), tmp_path
        ) as process,
    ):
        assert process.url.startswith("https://127.0.0.1:")
        assert process.admin_url.startswith("https://127.0.0.1:")
        async with httpx.AsyncClient(verify=trusting(tmp_path), timeout=60) as http:
            answer = await http.post(f"{process.url}/v1/chat/completions", json=BODY)
            assert answer.status_code == 200
            assert await name_shown(process.url, tmp_path) == "first"

            old = trusting(tmp_path)
            make_certificate(tmp_path, "second")
            reloaded = await http.post(f"{process.admin_url}/reload")
            assert reloaded.status_code == 200
            assert await name_shown(process.url, tmp_path) == "second"
            assert await name_shown(process.admin_url, tmp_path) == "second"
            again = await http.post(f"{process.url}/v1/chat/completions", json=BODY)
            assert again.status_code == 200, "connections that stand go on"

            (tmp_path / "key.pem").write_text("no key at all")
            refused = await http.post(f"{process.admin_url}/reload")
            assert refused.status_code == 400
            assert "cannot be used" in refused.json()["problems"][0]
            assert await name_shown(process.url, tmp_path) == "second"
        async with httpx.AsyncClient(verify=old) as distrusting:
            with pytest.raises(httpx.ConnectError):
                await distrusting.get(f"{process.url}/healthz")
        with pytest.raises(httpx.RemoteProtocolError):
            await process.http.get(process.url.replace("https", "http") + "/healthz")


@needs_openssl
async def test_a_certificate_that_cannot_be_used_is_said_at_the_start(tmp_path):
    make_certificate(tmp_path, "locked", passphrase="secret")
    tls = f'{{cert: "{tmp_path}/cert.pem", key: "{tmp_path}/key.pem"}}'
    text = config_of("http://127.0.0.1:9", more=f"tls: {tls}")
    with pytest.raises(AssertionError, match="cannot be used: its key needs a passphrase"):
        async with serving_process(text, tmp_path):
            pass


async def test_one_port_listens_on_several_addresses(tmp_path):
    path = tmp_path / "data.sock"
    listen = f'["127.0.0.1:0", "[::1]:0", "unix:{path}"]'
    async with (
        serving(good) as upstream,
        serving_process(config_of(upstream.url, listen=listen), tmp_path) as process,
    ):
        assert (await process.ask()).status_code == 200
        six = (await process.hears(r"Also on (http://\[::1\]:\d+)/v1")).group(1)
        assert (await process.http.post(f"{six}/v1/chat/completions", json=BODY)).status_code == 200
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport, timeout=60) as http:
            answer = await http.post("http://any/v1/chat/completions", json=BODY)
            assert answer.status_code == 200
    assert not path.exists(), "the socket's file goes with the process"


async def test_a_socket_that_a_crash_left_behind_is_taken_over(tmp_path):
    path = tmp_path / "data.sock"
    async with serving(good) as upstream:
        text = config_of(upstream.url, listen=f'["127.0.0.1:0", "unix:{path}"]')
        async with serving_process(text, tmp_path) as process:
            process.process.kill()
            await process.ends()
        assert path.exists()
        async with serving_process(text, tmp_path) as process:
            assert (await process.ask()).status_code == 200


async def test_an_address_that_is_taken_is_said(tmp_path):
    async with serving(good) as upstream:
        taken = upstream.url.removeprefix("http://")
        with pytest.raises(AssertionError, match=f"cannot listen on {taken}: Address already in"):
            async with serving_process(config_of(upstream.url, listen=taken), tmp_path):
                pass
