"""What load balancers ask."""

import asyncio

import httpx
import pytest
from misbehaving import serving
from running import CONFIG, good, running


async def head_over_a_socket(url: str, path: str) -> bytes:
    """All that comes: a body would stand after the empty line."""
    place = httpx.URL(url)
    reader, writer = await asyncio.open_connection(place.host, place.port)
    writer.write(
        f"HEAD {path} HTTP/1.1\r\nhost: {place.host}\r\nconnection: close\r\n\r\n".encode()
    )
    told = await reader.read()
    writer.close()
    return told


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/"])
async def test_a_head_is_answered_as_a_get_without_its_body(tmp_path, path):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        for url in (p.url, p.admin_url):
            asked = await p.http.get(f"{url}{path}")
            told = await head_over_a_socket(url, path)
            status, _, body = told.partition(b"\r\n\r\n")
            assert status.startswith(b"HTTP/1.1 %d" % asked.status_code)
            assert b"content-type: " + asked.headers["content-type"].encode() in status.lower()
            assert body == b""
    assert asked.status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_what_load_balancers_cannot_ask_is_refused_in_openais_shape(tmp_path, path):
    config = CONFIG.format(upstream="http://127.0.0.1:9", options="", policy="")
    async with running(config, tmp_path) as p:
        for url in (p.url, p.admin_url):
            answer = await p.http.post(f"{url}{path}")
            assert answer.status_code == 405
            assert {"GET", "HEAD"} <= set(answer.headers["allow"].split(", "))
            assert answer.json()["error"]["code"] == "method_not_allowed"
            answer = await p.http.get(f"{url}{path}/x")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
