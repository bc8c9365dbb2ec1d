"""Limits of tenants over sockets: who is refused, what is said, and what costs nothing."""

import asyncio
import json

import openai
import pytest
from misbehaving import plain, serving
from proxyprocess import serving_process
from running import BEGIN, DONE, USAGE_CHUNK, chunk, completion, good, running, wants_stream

from proxy.call import UNLIMITED
from proxy.errors import ClientError
from proxy.settings.config import Config, Limits, Tenants
from proxy.settings.listeners import Quota
from proxy.tenancy.meters import OwnMeters
from proxy.tenancy.quotas import Quotas, guess_tokens, with_limits

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
tenants:
  keys: {{sk-acme: acme, sk-acme-two: acme, sk-other: other}}
  limits: {{{acme}}}
limits: {{each_tenant: {{{each}}}}}
policies:
  standard: {{ttl: 1h, share: tenant}}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: standard, retries: 0}}
  - {{match: {{path: "/v1/files*"}}, to: main}}
"""


def config_of(upstream: str, *, acme: str = "", each: str = "") -> str:
    named = f"acme: {{{acme}}}" if acme else ""
    return CONFIG.format(upstream=upstream, acme=named, each=each)


async def test_requests_beyond_the_limit_are_refused_in_openais_shape(tmp_path):
    async def answer(request, writer) -> None:
        writer.write(plain(completion(), headers=("x-ratelimit-remaining-requests: 77",)))

    async with (
        serving(answer) as upstream,
        running(config_of(upstream.url, acme="requests_per_minute: 3"), tmp_path) as p,
    ):
        first = await p.ask("one", key="sk-acme")
        hit = await p.ask("one", key="sk-acme-two")
        passed_through = await p.http.get(
            f"{p.url}/v1/files", headers={"authorization": "Bearer sk-acme"}
        )
        refused = await p.ask("one", key="sk-acme")
        other = await p.ask("one", key="sk-other")
        models = await p.http.get(f"{p.url}/v1/models", headers={"authorization": "Bearer sk-acme"})
        with pytest.raises(openai.RateLimitError) as caught:
            async with p.openai("sk-acme") as client:
                await client.files.list()
    assert first.headers["x-ratelimit-limit-requests"] == "3"
    assert first.headers["x-ratelimit-remaining-requests"] == "2"
    assert first.headers["x-ratelimit-reset-requests"] == "20s"
    assert hit.headers["x-cache"] == "exact"
    assert hit.headers["x-ratelimit-remaining-requests"] == "1", "a hit is a request"
    assert passed_through.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.status_code == 429
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
    assert error["message"].startswith("Rate limit reached for acme on requests per minute")
    assert 0 < int(refused.headers["retry-after"]) <= 20
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert other.status_code == 200, "another tenant's limit is its own"
    assert "x-ratelimit-limit-requests" not in other.headers
    assert models.status_code == 200, "to look at the list costs nothing"
    assert caught.value.code == "rate_limit_exceeded"


async def test_tokens_are_those_that_the_upstream_counted(tmp_path):
    async with (
        serving(good) as upstream,
        running(config_of(upstream.url, each="tokens_per_minute: 100"), tmp_path) as p,
    ):
        plain_miss = await p.ask("one", key="sk-acme")
        hit = await p.ask("one", key="sk-acme")
        streamed = await p.ask("two", key="sk-acme", stream=True)
        after = await p.ask("one", key="sk-acme")
    # The upstream counts 8 tokens each time.
    assert plain_miss.headers["x-ratelimit-remaining-tokens"] == "92"
    assert hit.headers["x-ratelimit-remaining-tokens"] == "92", "what the cache answers is free"
    assert streamed.status_code == 200
    assert after.headers["x-ratelimit-remaining-tokens"] == "84"


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize(
    ("directive", "finish"),
    [("no-store", "stop"), ("max-age=60", "content_filter")],
    ids=["nobody wants it kept", "it may not be kept"],
)
async def test_what_is_not_kept_costs_what_the_upstream_counted(
    tmp_path, stream, directive, finish
):
    async def answer(request, writer) -> None:
        if wants_stream(request):
            ending = chunk({}, finish=finish) + USAGE_CHUNK + DONE
            writer.write(BEGIN + chunk({"content": "An answer."}) + ending)
        else:
            writer.write(plain(completion(finish_reason=finish)))

    async def ask(text: str, *, stream: bool = stream):
        headers = {"cache-control": directive}
        return await p.ask(text, key="sk-acme", stream=stream, headers=headers)

    async with (
        serving(answer) as upstream,
        running(config_of(upstream.url, each="tokens_per_minute: 100"), tmp_path) as p,
    ):
        answers = [await ask("one"), await ask("one"), await ask("two", stream=False)]
        metrics = (await p.http.get(f"{p.admin_url}/metrics")).text
        seen = (await p.http.get(f"{p.admin_url}/cache/recent")).json()["requests"]
    assert [one.status_code for one in answers] == [200] * 3
    assert len(upstream.requests) == 3, "none was kept"
    assert answers[-1].headers["x-ratelimit-remaining-tokens"] == "76", "8 tokens each time"
    assert 'rejoinder_upstream_tokens_total{kind="output",upstream="main"} 9.0' in metrics
    assert [(one["input_tokens"], one["output_tokens"]) for one in seen] == [(5, 3)] * 3
    told = "" if directive == "no-store" else "choice 0 ended with content_filter"
    assert {one["not_kept"] for one in seen} == {told}, "why, where it was to be kept"


async def test_a_stream_whose_reader_leaves_costs_what_came_of_it(tmp_path):
    async def answer(request, writer) -> None:
        if not wants_stream(request):
            writer.write(plain(completion()))
            return
        writer.write(BEGIN + b"".join(chunk({"content": "word "}) for _ in range(60)))
        await asyncio.Event().wait()

    async with (
        serving(answer) as upstream,
        running(config_of(upstream.url, each="tokens_per_minute: 1000"), tmp_path) as p,
    ):
        async with p.openai("sk-acme") as client:
            message = {"role": "user", "content": "one"}
            stream = await client.chat.completions.create(
                model="test-1", messages=[message], stream=True
            )
            seen = [await anext(stream) for _ in range(61)]
            await stream.close()
        while p.proxy.in_flight():
            await asyncio.sleep(0.01)
        after = await p.ask("two", key="sk-acme")
    assert len(seen) == 61
    spent = 1000 - int(after.headers["x-ratelimit-remaining-tokens"])
    assert 60 + 8 <= spent <= 61 + 40 + 8, (
        "60 words, the guess of the prompt, and the 8 of the other"
    )


async def test_who_has_no_tokens_left_still_gets_what_is_stored(tmp_path):
    async def costly(request, writer) -> None:
        writer.write(plain(completion().replace(b'"total_tokens": 8', b'"total_tokens": 8000')
                           .replace(b'"prompt_tokens": 5', b'"prompt_tokens": 7997')))  # fmt: skip

    async with (
        serving(costly) as upstream,
        running(config_of(upstream.url, each="tokens_per_minute: 1000"), tmp_path) as p,
    ):
        first = await p.ask("one", key="sk-acme")
        refused = await p.ask("two", key="sk-acme")
        stored = await p.ask("one", key="sk-acme")
    assert first.headers["x-ratelimit-remaining-tokens"] == "0"
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "tokens")
    assert int(refused.headers["retry-after"]) > 300, "it owes eight minutes' worth"
    assert stored.headers["x-cache"] == "exact"
    assert len(upstream.requests) == 1


async def test_what_an_upstream_refuses_costs_no_tokens(tmp_path):
    async def refusing(request, writer) -> None:
        writer.write(plain(b'{"error": {}}', status="400 Bad Request"))

    async with (
        serving(refusing) as upstream,
        running(config_of(upstream.url, each="tokens_per_minute: 1000"), tmp_path) as p,
    ):
        refused = await p.ask("one", key="sk-acme", max_tokens=500)
        again = await p.ask("one", key="sk-acme", max_tokens=500)
    assert refused.status_code == again.status_code == 400
    assert again.headers["x-ratelimit-remaining-tokens"] == "1000"


async def test_who_joins_a_request_in_flight_pays_no_tokens(tmp_path):
    go_on = asyncio.Event()

    async def slow(request, writer) -> None:
        await go_on.wait()
        writer.write(plain(completion()))

    async with (
        serving(slow) as upstream,
        running(config_of(upstream.url, each="tokens_per_minute: 1000"), tmp_path) as p,
    ):
        asking = [asyncio.create_task(p.ask("same", key="sk-acme")) for _ in range(5)]
        while len(p.proxy.listeners()) < 5:
            await asyncio.sleep(0.01)
        go_on.set()
        answers = await asyncio.gather(*asking)
        after = await p.ask("same", key="sk-acme")
    assert len(upstream.requests) == 1
    assert {answer.status_code for answer in answers} == {200}
    assert after.headers["x-ratelimit-remaining-tokens"] == "992"


async def test_the_limit_is_of_all_workers_together(tmp_path):
    async with serving(good) as upstream:
        text = config_of(upstream.url, acme="requests_per_minute: 20")
        text += f"workers: 3\nstore: {{path: {tmp_path}/store.db}}\n"
        async with serving_process(text, tmp_path) as process:
            process.http.headers["authorization"] = "Bearer sk-acme"
            statuses = []
            for _ in range(4):
                at_once = await asyncio.gather(*(process.ask(f"{i}") for i in range(8)))
                statuses += [answer.status_code for answer in at_once]
    # While it ran, some seconds passed: each three let one more through.
    assert 20 <= statuses.count(200) <= 27
    assert statuses.count(429) == 32 - statuses.count(200)


async def test_a_reload_keeps_what_was_used_and_takes_the_new_limit(tmp_path):
    async with (
        serving(good) as upstream,
        serving_process(
            config_of(upstream.url, acme="requests_per_minute: 2"), tmp_path
        ) as process,
    ):
        process.http.headers["authorization"] = "Bearer sk-acme"
        assert [(await process.ask()).status_code for _ in range(3)] == [200, 200, 429]
        process.path.write_text(config_of(upstream.url, acme="requests_per_minute: 3"))
        assert (await process.http.post(f"{process.admin_url}/reload")).status_code == 200
        refused = await process.ask()
        assert refused.status_code == 429, "a fuller limit does not empty the meter"
        assert refused.headers["x-ratelimit-limit-requests"] == "3"


def test_who_has_no_limits_costs_nothing():
    config = Config(upstreams={}, routes=())
    quotas = Quotas(config, meters=OwnMeters(), clock=lambda: 0.0)
    assert quotas.admit("anyone") is UNLIMITED
    headers = ((b"x-ratelimit-remaining-requests", b"7"),)
    assert with_limits(headers, UNLIMITED) == headers


def test_a_named_limit_takes_the_place_of_the_one_for_each():
    now = 0.0
    config = Config(
        upstreams={},
        routes=(),
        limits=Limits(each_tenant=Quota(requests_per_minute=1)),
        tenants=Tenants(limits={"big": Quota(tokens_per_minute=100)}),
    )
    quotas = Quotas(config, meters=OwnMeters(), clock=lambda: now)
    quotas.admit("small")
    with pytest.raises(ClientError) as caught:
        quotas.admit("small")
    assert caught.value.status == 429
    for _ in range(5):
        grant = quotas.admit("big")
    grant.reserve(b"x" * 200, {"max_tokens": 40})
    grant.reserve(b"x" * 200, {"max_tokens": 40})
    assert dict(grant.headers())[b"x-ratelimit-remaining-tokens"] == b"10"
    grant.charge(20)
    grant.charge(5)  # a second piece of the same answer
    grant.release()
    assert dict(grant.headers())[b"x-ratelimit-remaining-tokens"] == b"75"


@pytest.mark.parametrize(
    ("body", "fields", "tokens"),
    [
        (b"x" * 400, {}, 100),
        (b"x" * 400, {"max_tokens": 50}, 150),
        (b"x" * 400, {"max_completion_tokens": 50, "n": 3}, 250),
        (b"x" * 10_000_000, {"max_output_tokens": 1}, 16385),
        (b"", {"max_tokens": "many", "n": "two"}, 0),
    ],
)
def test_a_guess_is_the_most_that_is_asked_and_a_quarter_of_the_bytes(body, fields, tokens):
    assert guess_tokens(body, json.loads(json.dumps(fields))) == tokens
