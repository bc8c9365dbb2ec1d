"""Forward proxies as the environment names them."""

import base64

import httpx
import pytest
from misbehaving import answering, plain, serving
from running import completion, running

from proxy.errors import ConfigError
from proxy.upstreams.environment import Way, way_to

PROXY = "http://proxy:3128"
CREDENTIAL = "Basic " + base64.b64encode(b"me:p@ss").decode()

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  u: {{base_url: "{url}/v1"}}
routes:
  - {{to: u, retries: 0}}
"""


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def way(url="https://api.example.com/v1", **proxies):
    return way_to(httpx.URL(url), proxies)


def test_nothing_in_the_environment_is_the_straight_way():
    assert way() == way(no="*") == way(http=PROXY) == way(https="") == Way()


def test_the_proxy_of_the_scheme_goes_before_that_of_all():
    assert way(https=PROXY, all="http://other:1").proxy == PROXY
    assert way(http=PROXY, https="", all="http://other:1").proxy == "http://other:1"


def test_an_address_without_a_scheme_is_spoken_to_over_http():
    assert way(https="proxy:3128").proxy == PROXY
    assert way(https="me:p%40ss@proxy:3128") == way(https="http://me:p%40ss@proxy:3128")


@pytest.mark.parametrize("host", ["10.1.2.3", "[::1]", "a_b.example", "xn--bcher-kva.example"])
def test_a_proxy_may_be_an_address_or_a_name(host):
    assert way(https=f"http://{host}:3128").proxy == f"http://{host}:3128"


def test_credentials_go_with_the_tunnel_or_with_each_request():
    proxy = "http://me:p%40ss@proxy:3128"
    tunnel = way(https=proxy)
    assert tunnel == Way(proxy=PROXY, connect_headers={"proxy-authorization": CREDENTIAL})
    plain = way("http://api.example.com/v1", http=proxy)
    assert plain == Way(proxy=PROXY, headers=(("proxy-authorization", CREDENTIAL),))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("socks5://me:secret@proxy:1080", "HTTPS_PROXY: socks5:// is not supported"),
        ("SOCKS5H://proxy", "HTTPS_PROXY: SOCKS5H:// is not supported"),
        ("http://", "HTTPS_PROXY: not the URL of a proxy"),
        ("http://[bad", "HTTPS_PROXY: not the URL of a proxy"),
        ("http://me:secret@proxy:port", "HTTPS_PROXY: not the URL of a proxy"),
        ("me:secret://@proxy", "HTTPS_PROXY: not the URL of a proxy"),
    ],
)
def test_what_cannot_be_used_is_refused_without_its_secrets(address, message):
    with pytest.raises(ValueError, match=message) as refused:
        way(https=address)
    assert "secret" not in str(refused.value)


def test_the_variable_that_was_read_is_the_one_that_is_named():
    with pytest.raises(ValueError, match="ALL_PROXY"):
        way(all="socks4://proxy")


def test_a_proxy_that_is_not_needed_is_not_looked_at():
    assert way(all="socks5://proxy", no="example.com") == Way()


@pytest.mark.parametrize(
    ("url", "exceptions"),
    [
        ("https://api.example.com", "*"),
        ("https://api.example.com", "a.b, API.Example.com"),
        ("https://api.example.com", "a.b example.com"),
        ("https://api.example.com", ".example.com"),
        ("https://api.example.com.", "*.example.com"),
        ("https://example.com", ".example.com"),
        ("https://api.example.com", "example.com:443"),
        ("http://api.example.com:8080", "api.example.com:8080"),
        ("http://10.1.2.3:8080", "10.0.0.0/8"),
        ("http://10.1.2.3:8080", "10.1.2.3"),
        ("http://10.1.2.3:8080", "10.1.2.3:8080"),
        ("http://[fd00::1]:8080", "fd00::/8"),
        ("http://[::1]:8080", "::1"),
        ("http://[::1]:8080", "[::1]"),
        ("http://[::1]:8080", "[::1]:8080"),
        ("http://bücher.example", "xn--bcher-kva.example"),
    ],
)
def test_an_exception_leads_past_the_proxy(url, exceptions):
    assert way(url, all=PROXY, no=exceptions) == Way()


@pytest.mark.parametrize(
    ("url", "exceptions"),
    [
        ("https://api.example.com", ""),
        ("https://api.example.com", ","),
        ("https://api.example.com", "."),
        ("https://notexample.com", "example.com"),
        ("https://example.com", "api.example.com"),
        ("https://api.example.com", "example.com:8443"),
        ("http://api.example.com:8080", "example.com:80"),
        ("http://11.1.2.3", "10.0.0.0/8"),
        ("http://api.example.com", "0.0.0.0/0"),
        ("http://[::1]:8080", "[::1]:9090"),
    ],
)
def test_other_hosts_and_ports_are_not_excepted(url, exceptions):
    assert way(url, all=PROXY, no=exceptions).proxy == PROXY


@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
async def test_requests_go_to_the_proxy_with_its_credentials(tmp_path, monkeypatch, name):
    async with serving(answering(plain(completion()))) as middle:
        address = middle.url.removeprefix("http://")
        monkeypatch.setenv(name, f"me:p%40ss@{address}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")  # the client reads it, too
        async with running(CONFIG.format(url="http://upstream.invalid"), tmp_path) as proxy:
            assert (await proxy.ask()).status_code == 200
            assert (await proxy.ask("another")).status_code == 200
    for request in middle.requests:
        assert request.line == "POST http://upstream.invalid/v1/chat/completions HTTP/1.1"
        assert request.header("proxy-authorization") == CREDENTIAL
        assert request.header("authorization") == "Bearer sk-one"
        assert request.header("host") == "upstream.invalid"


async def test_an_excepted_server_gets_no_credentials_of_the_proxy(tmp_path, monkeypatch):
    async with serving(answering(plain(completion()))) as server:
        monkeypatch.setenv("HTTP_PROXY", "http://me:p%40ss@127.0.0.1:9")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        async with running(CONFIG.format(url=server.url), tmp_path) as proxy:
            assert (await proxy.ask()).status_code == 200
    assert server.requests[0].header("proxy-authorization") is None


async def test_a_proxy_that_cannot_be_used_stops_the_start(tmp_path, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@127.0.0.1:1080")
    with pytest.raises(ConfigError) as wrong:
        async with running(CONFIG.format(url="http://127.0.0.1:9"), tmp_path):
            pass
    (problem,) = wrong.value.problems
    assert problem.startswith("upstreams.u: ALL_PROXY: socks5:// is not supported")
    assert "secret" not in problem
