"""Mistakes in listeners, processes and limits, each told at its line."""

import pytest

from proxy.errors import ConfigError
from proxy.settings.file import parse

REMOTE = 'upstreams: {u: {base_url: "http://127.0.0.1:9"}}\nroutes: [{to: u}]\n'


def problems_of(text: str, tmp_path) -> list[str]:
    path = tmp_path / "c.yaml"
    with pytest.raises(ConfigError) as caught:
        parse(path, REMOTE + text, environ={})
    return [line.removeprefix(f"{path}:") for line in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "workers: 2",
            "3: workers: several workers share what they store: set `store.path` or `store.redis`",
        ),
        ("listen: []", "3: listen: an empty list: nobody could connect"),
        (
            "listen: ['127.0.0.1:80', '127.0.0.1:80']",
            "3: listen[1]: 127.0.0.1:80 is already taken by `listen`",
        ),
        (
            "listen: ['127.0.0.1:8081']",
            "1: admin.listen: 127.0.0.1:8081 is already taken by `listen`",
        ),
        (
            "listen: ['127.0.0.1:80', 'unix:here']",
            "3: listen[1]: a Unix socket needs an absolute path: unix:/run/rejoinder.sock, "
            "got 'unix:here'",
        ),
        (
            "tls: {cert: /no/cert, key: /no/key}",
            "3: tls.cert: no such file: '/no/cert'",
        ),
        (
            "shutdown: {grace: 10s, deadline: 5s}",
            "3: shutdown: `grace` is part of `deadline` and cannot be longer",
        ),
        (
            "tenants: {keys: {sk-1: acme}, limits: {acne: {requests_per_minute: 1}}}",
            "3: tenants.limits.acne: no key belongs to a tenant `acne`; did you mean `acme`?",
        ),
        (
            "limits: {each_tenant: {tokens_per_minute: 0}}",
            "3: limits.each_tenant.tokens_per_minute: expected a whole number >= 1, got 0",
        ),
    ],
)
def test_what_cannot_work_is_told_at_its_line(tmp_path, text, problem):
    assert problem in problems_of(text, tmp_path)


def test_every_open_address_is_looked_at(tmp_path):
    text = (
        "upstreams: {u: {base_url: 'http://h', credential: own, api_key: sk-1}}\n"
        "routes: [{to: u}]\nlisten: ['127.0.0.1:80', '0.0.0.0:81']\n"
    )
    with pytest.raises(ConfigError) as caught:
        parse(tmp_path / "c.yaml", text, environ={})
    assert "anyone who reaches 0.0.0.0:81 could spend this key" in str(caught.value)


def test_a_relative_path_is_told_as_it_is_found_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (problem, _) = problems_of("tls: {cert: a.crt, key: a.key}", tmp_path)
    assert problem == f"3: tls.cert: no such file: 'a.crt', which is {tmp_path}/a.crt here"


@pytest.mark.parametrize(
    ("listen", "token", "warned"),
    [
        ("0.0.0.0:81", "letmein", True),
        ("0.0.0.0:81", "0123456789abcdef", False),
        ("127.0.0.1:81", "letmein", False),
    ],
)
def test_a_token_that_can_be_guessed_is_warned_of_where_strangers_could_try(
    tmp_path, listen, token, warned
):
    text = f"{REMOTE}admin: {{listen: '{listen}', token: {token}}}"
    warnings = parse(tmp_path / "c.yaml", text, environ={}).warnings
    assert [": admin.token: " in line for line in warnings] == [True] * warned
    assert all(token not in line for line in warnings)
