"""Methods and paths: what each leads to, over real sockets and by itself."""

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from misbehaving import plain, serving
from running import CONFIG, running

from proxy.call import Surface
from proxy.errors import ClientError
from proxy.request.target import Target, target_of


@pytest.mark.parametrize("surface", Surface)
@pytest.mark.parametrize("prefix", ["/v1", "", "//v1/"])
def test_surfaces_are_found_with_and_without_the_prefix(surface, prefix):
    found = target_of("POST", prefix + surface.value)
    assert (found.surface, found.path) == (surface, surface.value)


@pytest.mark.parametrize("surface", Surface)
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "GET", "TRACE"])
def test_a_wrong_method_is_405_and_says_which_are_right(surface, method):
    if surface is Surface.CHAT and method == "GET":
        assert target_of(method, "/v1/chat/completions") == Target(path="/chat/completions")
        return
    with pytest.raises(ClientError) as raised:
        target_of(method, f"/v1{surface.value}")
    assert raised.value.status == 405
    assert "POST" in raised.value.allow


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v2/models", "/favicon.ico", "/metrics", "/chats", "", "/.env", "/v1chat"]
)
def test_a_path_outside_of_the_api_is_404(path):
    with pytest.raises(ClientError) as raised:
        target_of("GET", path)
    assert raised.value.status == 404


@pytest.mark.parametrize(
    ("method", "path", "below"),
    [
        ("GET", "/v1/files/file-1/content", "/files/file-1/content"),
        ("GET", "/files", "/files"),
        ("GET", "/v1/responses/resp_1", "/responses/resp_1"),
        ("DELETE", "/v1/models/ft:x", "/models/ft:x"),
        ("POST", "/v1/something/new", "/something/new"),
        ("OPTIONS", "/v1/files", "/files"),
    ],
)
def test_everything_else_of_the_api_is_passed_through(method, path, below):
    assert target_of(method, path) == Target(path=below)


@pytest.mark.parametrize(
    "segment",
    [
        "..", ".", "%2e%2e", ".%2E", "%252e%252e", "%25252e.", "%%32e%2e", "%%32%65.", "..;",
        "..;a=1", ".%2e%3bx", "a%2f..%2fb", "a%5c..%5cb", "a\\..\\b", "a%252f..%252fb",
        "%25252525252e",
    ],
)  # fmt: skip
def test_a_path_in_which_an_upstream_could_climb_is_refused(segment):
    for path in (f"/v1/audio/{segment}/files", f"/v1/audio/{segment}"):
        with pytest.raises(ClientError) as raised:
            target_of("GET", path)
        assert raised.value.status == 400


@pytest.mark.parametrize("name", ["a..b", "..a", "v1.5", "a%20b", "a%2Fb", "50%25", ".env", "a;b"])
def test_dots_and_escapes_within_names_are_passed_through(name):
    assert target_of("GET", f"/v1/files/{name}").path == f"/files/{name}"


@given(st.sampled_from(["GET", "POST", "HEAD", "BREW"]), st.text(max_size=40))
def test_any_path_has_a_target_or_is_refused(method, path):
    try:
        target = target_of(method, path)
    except ClientError as error:
        assert error.status in (400, 404, 405)
    else:
        assert target.path.startswith("/")


async def test_refusals_have_openai_s_shape(tmp_path):
    async def answer(_request, writer):
        writer.write(plain(b"{}"))

    async with (
        serving(answer) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        wrong_method = await p.http.get(f"{p.url}/v1/embeddings")
        preflight = await p.http.options(
            f"{p.url}/v1/chat/completions", headers={"origin": "https://evil.example"}
        )
        head = await p.http.head(f"{p.url}/v1/chat/completions")
        unknown = await p.http.get(f"{p.url}/nowhere")
        no_route = await p.http.get(f"{p.url}/v1/nowhere")
        passed = await p.http.get(f"{p.url}/v1/files")
    assert [a.status_code for a in (wrong_method, preflight, head, unknown, no_route, passed)] == [
        405, 405, 405, 404, 404, 200,
    ]  # fmt: skip
    for answered in (wrong_method, preflight, unknown, no_route):
        assert set(answered.json()["error"]) == {"message", "type", "param", "code"}
        assert answered.headers["x-request-id"]
    assert wrong_method.headers["allow"] == "POST"
    assert not [name for name in preflight.headers if name.startswith("access-control-")]
    assert head.content == b""
    assert [r.line for r in upstream.requests] == ["GET /v1/files HTTP/1.1"]


async def test_models_are_listed_and_found_by_ids_with_slashes(tmp_path):
    async def answer(_request, writer):
        writer.write(plain(b"{}"))

    async with serving(answer) as upstream:
        config = CONFIG.format(upstream=upstream.url, options="", policy="").replace(
            'model: "uncached"', 'model: ["uncached", "org/name:v1.5"]'
        )
        config += "aliases: {fast/one: uncached}\n"
        async with running(config, tmp_path) as p:
            client = p.openai()
            listed = [model.id async for model in client.models.list()]
            slashed = await client.models.retrieve("org/name:v1.5")
            raw = await p.http.get(f"{p.url}/v1/models/org/name:v1.5")
            head = await p.http.head(f"{p.url}/v1/models")
            with pytest.raises(openai.NotFoundError) as raised:
                await client.models.retrieve("nothing")
            wrong = await p.http.post(f"{p.url}/v1/models")
            await client.close()
    assert listed == ["fast/one", "uncached", "org/name:v1.5"]
    assert slashed.id == "org/name:v1.5"
    assert (slashed.object, raw.json()["id"]) == ("model", "org/name:v1.5")
    assert "x-cache" not in raw.headers
    assert raised.value.code == "model_not_found"
    assert (head.status_code, head.content) == (200, b"")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD")
    assert not upstream.requests


async def test_a_passed_through_body_that_breaks_off_gets_no_words_of_ours(tmp_path):
    """It may be a file: an event of ours at its end would be part of it."""

    async def answer(_request, writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\n"
                     b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")  # fmt: skip
        await writer.drain()
        writer.close()

    got = b""
    async with (
        serving(answer) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        with pytest.raises(Exception, match=r"peer closed|incomplete"):
            async with p.http.stream("GET", f"{p.url}/v1/files/1/content") as answered:
                async for piece in answered.aiter_bytes():
                    got += piece
    assert got == b"hello"
