"""What nobody may reach or read: paths that lead elsewhere, loops, keys, the admin port."""

import asyncio
import contextlib

import httpx
import pytest
from misbehaving import plain, serving
from proxyprocess import serving_process
from running import CONFIG as PLAIN_CONFIG
from running import good, running

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0", token: "{token}", hosts: [proxy.example]}}
upstreams:
  main: {{base_url: "{upstream}/v1"{options}}}
{more}
routes:
  - {{match: {{path: "/v1/files/public/*"}}, to: main}}
  - {{match: {{model: "test-*"}}, to: main, retries: 0}}
"""


def config_of(upstream: str, *, token: str = "", options: str = "", more: str = "") -> str:
    return CONFIG.format(upstream=upstream, token=token, options=options, more=more)


async def ask_raw(url: str, head: str, body: bytes = b"") -> tuple[int, bytes]:
    """A request as it stands, without a client that tidies it up."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [head, "host: 127.0.0.1", "connection: close"]
    if body:
        lines.append(f"content-length: {len(body)}")
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    answer = await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return int(answer.split()[1]), answer


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files/public/../secret",
        "/v1/files/public/%2e%2e/secret",
        "/v1/files/public/%2E./secret",
        "/v1/files/public/..%2fsecret",
        "/v1/files/public/..%5csecret",
        "/v1/files/public/./x",
        "http://elsewhere/v1/files/public/../secret",
    ],
)
async def test_a_path_that_climbs_out_of_its_route_is_refused(tmp_path, path):
    async with serving(good) as upstream, running(config_of(upstream.url), tmp_path) as p:
        status, _ = await ask_raw(p.url, f"GET {path} HTTP/1.1")
        assert status == 400
        assert not upstream.requests


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("//v1//chat//completions", 200),
        ("/v1/chat/completions/", 200),
        ("http://elsewhere.example/v1/chat/completions", 200),
        ("/chat/completions", 200),
        ("/v1/chat/completions?x=/../y", 200),
        ("*", 404),
        ("elsewhere.example:443", 400),
        ("/v2/chat/completions", 404),
        ("/cache/purge", 404),
        ("/metrics", 404),
    ],
)
async def test_the_raw_target_decides(tmp_path, target, status):
    body = b'{"model": "test-1", "messages": [{"role": "user", "content": "?"}]}'
    async with serving(good) as upstream, running(config_of(upstream.url), tmp_path) as p:
        assert (await ask_raw(p.url, f"POST {target} HTTP/1.1", body))[0] == status
        assert len(upstream.requests) == (status == 200)
        if upstream.requests:
            assert upstream.requests[0].line.startswith("POST /v1/chat/completions")
            assert "elsewhere" not in str(upstream.requests[0].header("host"))


async def test_a_method_with_a_tunnel_is_refused(tmp_path):
    async with serving(good) as upstream, running(config_of(upstream.url), tmp_path) as p:
        status, _ = await ask_raw(p.url, "CONNECT elsewhere.example:443 HTTP/1.1")
        assert 400 <= status < 500
        assert not upstream.requests


@pytest.mark.parametrize("field", ["api_base", "base_url", "api_key"])
async def test_no_request_names_its_own_upstream(tmp_path, field):
    async with serving(good) as upstream, running(config_of(upstream.url), tmp_path) as p:
        refused = await p.ask(**{field: "http://127.0.0.1:1/v1"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
        assert not upstream.requests


async def test_two_proxies_that_lead_to_each_other_stop_at_once(tmp_path):
    first_folder, second_folder = tmp_path / "first", tmp_path / "second"
    first_folder.mkdir()
    second_folder.mkdir()
    relayed = 0

    async def relay(request, writer) -> None:
        """Between the first and the second, whose address the first must know before."""
        nonlocal relayed
        relayed += 1
        headers = [pair for pair in request.headers if pair[0].lower() != "host"]
        async with httpx.AsyncClient(timeout=30) as http:
            answer = await http.post(
                f"{second.url}/v1/chat/completions", content=request.body, headers=headers
            )
        writer.write(plain(answer.content, status=f"{answer.status_code} X"))

    async with serving(relay) as between, running(config_of(between.url), first_folder) as first:
        text = config_of(first.url)
        async with running(text, second_folder) as second:
            answer = await first.ask()
    assert (answer.status_code, answer.json()["error"]["code"]) == (508, "loop_detected")
    assert relayed == 1


async def test_a_redirect_is_not_followed(tmp_path):
    async with serving(good) as elsewhere:
        location = f"location: {elsewhere.url}/v1/chat/completions"

        async def redirect(request, writer) -> None:
            writer.write(plain(b"", status="307 Temporary Redirect", headers=(location,)))

        async with serving(redirect) as upstream, running(config_of(upstream.url), tmp_path) as p:
            answer = await p.ask()
            await p.http.get(f"{p.url}/v1/files/public/x")
    assert answer.status_code >= 300
    assert not elsewhere.requests


async def test_keys_are_in_no_log_no_error_and_no_config_that_is_shown(tmp_path):
    secrets = ("sk-upstream-1111", "sk-tenant-2222", "admin-3333", "query-4444", "header-5555")

    async def telling(request, writer) -> None:
        """An upstream that repeats what it was sent, and then one that breaks."""
        seen = f"{request.line} {request.headers}"
        if b"break" in request.body:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {")
            writer.close()
        else:
            body = b'{"error": {"message": "bad key %b"}}' % seen.replace('"', "").encode()
            writer.write(plain(body, status="401 Unauthorized", headers=(f"x-seen: {seen}",)))

    options = (
        ", credential: own, api_key: sk-upstream-1111, query: {sig: query-4444}, "
        "headers: {x-secret: header-5555}"
    )
    more = "tenants: {keys: {sk-tenant-2222: acme}}"
    shown: list[str] = []
    async with serving(telling) as upstream:
        text = config_of(upstream.url, token="admin-3333", options=options, more=more)
        async with serving_process(text, tmp_path) as process:
            key = {"authorization": "Bearer sk-tenant-2222"}
            process.http.headers.update(key)
            for question in ("one", "break"):
                answer = await process.ask(question, stream=question == "break")
                shown += [answer.text, str(answer.headers)]
            wrong = await process.http.get(
                f"{process.url}/v1/models", headers={"authorization": "Bearer sk-tenant-2222x"}
            )
            shown.append(wrong.text)
            admin = {"authorization": "Bearer admin-3333"}
            for path in ("config", "metrics", "cache/stats", "readyz"):
                told = await process.http.get(f"{process.admin_url}/{path}", headers=admin)
                assert told.status_code == 200
                shown.append(told.text)
            await process.http.post(
                f"{process.admin_url}/cache/purge", json={"all": True}, headers=admin
            )
            process.path.write_text(text.replace("path:", "pat:"))
            told = await process.http.post(f"{process.admin_url}/reload", headers=admin)
            assert told.status_code == 400
            shown.append(told.text)
        assert len(upstream.requests) == 2
        assert "sk-upstream-1111" in str(upstream.requests[0].headers)
        shown += process.said
    for secret in secrets:
        assert not [text for text in shown if secret in text]


async def test_metrics_are_told_without_the_token_where_the_config_says_so(tmp_path):
    async with serving(good) as upstream:
        text = config_of(upstream.url, token="admin-token")
        for more, status in (("", 401), (", open_metrics: true", 200)):
            config = text.replace("hosts: [proxy.example]", f"hosts: [proxy.example]{more}")
            async with running(config, tmp_path) as p:
                assert (await p.http.get(f"{p.admin_url}/metrics")).status_code == status
                assert (await p.http.get(f"{p.admin_url}/cache/stats")).status_code == 401


async def test_the_admin_port_knows_its_names_and_its_token(tmp_path):
    async def ask(path: str, *, host: str = "", token: str = "", origin: str = "", **how) -> int:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        headers |= {"host": host} if host else {}
        headers |= {"origin": origin} if origin else {}
        method = how.get("method", "GET")
        answer = await p.http.request(method, f"{p.admin_url}{path}", headers=headers)
        return answer.status_code

    async with (
        serving(good) as upstream,
        running(config_of(upstream.url, token="admin-token"), tmp_path) as p,
    ):
        assert await ask("/cache/stats") == 401
        assert await ask("/cache/stats", token="wrong") == 401
        assert await ask("/cache/stats", token="admin-token") == 200
        assert await ask("/healthz") == await ask("/readyz") == 200
        assert await ask("/reload", method="POST") == 401
        for host in ("evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example"):
            assert await ask("/healthz", host=host) == 403
            assert await ask("/cache/stats", token="admin-token", host=host) == 403
        for host in ("proxy.example", "proxy.example:8081", "localhost", "[::1]:1", "127.0.0.9"):
            assert await ask("/cache/stats", token="admin-token", host=host) == 200
        for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example"):
            assert await ask("/reload", method="POST", token="admin-token", origin=origin) == 403
        assert await ask("/cache/stats", token="admin-token", origin="https://proxy.example") == 200
        # The data port has nothing of it.
        for path in ("/cache/stats", "/metrics", "/config", "/reload"):
            assert (await p.http.get(f"{p.url}{path}")).status_code == 404


async def test_who_is_up_is_told_without_waiting_for_anybody(tmp_path):
    async def never(request, writer) -> None:
        await asyncio.Event().wait()

    async with (
        serving(never) as upstream,
        running(PLAIN_CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        asking = asyncio.create_task(p.ask())
        while not upstream.requests:
            await asyncio.sleep(0.01)
        for url in (p.url, p.admin_url):
            assert (await p.http.get(f"{url}/healthz")).json() == {"status": "ok"}
            ready = await p.http.get(f"{url}/readyz")
            assert (ready.status_code, ready.json()["ready"]) == (200, True)
            assert "main" in ready.json()["upstreams"]
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
