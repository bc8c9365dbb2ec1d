"""A config that changes under a running proxy: over sockets, with requests in flight."""

import asyncio
import signal

import httpx
from misbehaving import plain, serving
from proxyprocess import Process, serving_process
from running import BEGIN, END, chunk, completion, good, wants_stream

from proxy.processes.reload import change_to
from proxy.settings.config import Config, Route, Store, Upstream
from proxy.settings.listeners import Admin, Tls

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
  {more}
shutdown: {{grace: 0s}}
routes:
  - {{match: {{model: "test-*"}}, to: main{model}}}
"""


def config_of(upstream: str, *, model: str = "", more: str = "") -> str:
    rewrite = f", model: {{rewrite: {model}}}" if model else ""
    return CONFIG.format(upstream=upstream, model=rewrite, more=more)


async def echo_model(request, writer) -> None:
    """Answers with the text `model MODEL`, MODEL as it was asked for."""
    model = request.body.split(b'"model":"')[1].split(b'"')[0].decode()
    writer.write(plain(completion(f"model {model}")))


def text_of(answer: httpx.Response) -> str:
    return answer.json()["choices"][0]["message"]["content"]


async def answers_as(process: Process, model: str) -> None:
    while text_of(await process.ask()) != f"model {model}":
        await asyncio.sleep(0.02)


async def test_a_changed_file_a_signal_and_the_admin_port_each_reload(tmp_path):
    async with (
        serving(echo_model) as upstream,
        serving_process(config_of(upstream.url), tmp_path) as process,
    ):
        assert text_of(await process.ask()) == "model test-1"

        process.path.write_text(config_of(upstream.url, model="by-watching"))
        await answers_as(process, "by-watching")

        process.path.write_text(config_of(upstream.url, model="by-admin"))
        reloaded = await process.http.post(f"{process.admin_url}/reload")
        assert (reloaded.status_code, reloaded.json()["ok"]) == (200, True)
        assert text_of(await process.ask()) == "model by-admin"

        process.path.write_text(config_of(upstream.url, model="by-signal"))
        process.process.send_signal(signal.SIGHUP)
        await answers_as(process, "by-signal")
        assert upstream.num_connections == 1, "an upstream that did not change keeps its connection"


async def test_a_broken_file_is_reported_and_the_config_before_stays(tmp_path):
    async with (
        serving(echo_model) as upstream,
        serving_process(config_of(upstream.url), tmp_path) as process,
    ):
        process.path.write_text(
            config_of(upstream.url).replace("test-*", "t*").replace("to:", "t:")
        )
        refused = await process.http.post(f"{process.admin_url}/reload")
        assert refused.status_code == 400
        problems = refused.json()["problems"]
        assert [line.rpartition("serve.yaml:")[2] for line in problems] == [
            "9: routes[0].t: unknown key; did you mean `to`?",
        ]
        assert refused.json()["error"]["message"] == "\n".join(problems)
        assert text_of(await process.ask()) == "model test-1"
        ready = await process.http.get(f"{process.url}/readyz")
        assert ready.status_code == 200
        assert ready.json()["reload"]["problems"] == problems
        stats = (await process.http.get(f"{process.admin_url}/cache/stats")).json()
        assert stats["reload"]["ok"] is False
        await process.hears("config not reloaded: .*routes.0..t: unknown key")


async def test_a_request_in_flight_keeps_its_config_and_its_upstream(tmp_path):
    go_on = asyncio.Event()

    async def slow(request, writer) -> None:
        if not wants_stream(request):
            await echo_model(request, writer)
            return
        writer.write(BEGIN + chunk({"content": "old "}))
        await writer.drain()
        await go_on.wait()
        writer.write(chunk({"content": "config"}) + END)

    async with (
        serving(slow) as old,
        serving(echo_model) as new,
        serving_process(config_of(old.url), tmp_path) as process,
    ):
        body = {"model": "test-1", "messages": [{"role": "user", "content": "?"}], "stream": True}
        request = process.http.build_request(
            "POST", f"{process.url}/v1/chat/completions", json=body
        )
        streamed = await process.http.send(request, stream=True)
        pieces = streamed.aiter_text()
        text = await anext(pieces)

        process.path.write_text(config_of(new.url, model="new"))
        reloaded = await process.http.post(f"{process.admin_url}/reload")
        assert reloaded.status_code == 200
        assert text_of(await process.ask()) == "model new"
        assert not old.client_left.is_set(), "its connection is still needed"

        go_on.set()
        text += "".join([piece async for piece in pieces])
        assert "old " in text
        assert "config" in text
        assert text.endswith("data: [DONE]\n\n")
        await old.client_left.wait()


async def test_reloads_under_load_drop_no_request(tmp_path):
    async with (
        serving(good) as one,
        serving(good) as other,
        serving_process(config_of(one.url), tmp_path) as process,
    ):
        done = asyncio.Event()
        statuses: list[int] = []

        async def client(number: int) -> None:
            while not done.is_set():
                answer = await process.ask(f"{number}", stream=number % 2 == 0)
                statuses.append(answer.status_code)
                assert answer.text.endswith("[DONE]\n\n" if number % 2 == 0 else "}")

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(client(number))
            for turn in range(10):
                process.path.write_text(config_of((other, one)[turn % 2].url))
                answer = await process.http.post(f"{process.admin_url}/reload")
                assert answer.status_code == 200
            done.set()
    assert set(statuses) == {200}
    assert one.requests
    assert other.requests


async def test_what_only_a_restart_changes_is_said(tmp_path):
    async with (
        serving(echo_model) as upstream,
        serving_process(config_of(upstream.url), tmp_path) as process,
    ):
        text = config_of(upstream.url, model="new").replace(
            "127.0.0.1:0\nadmin", "127.0.0.1:1\nadmin"
        )
        process.path.write_text(text)
        reloaded = await process.http.post(f"{process.admin_url}/reload")
        assert reloaded.json()["warnings"] == ["listen: takes effect at the next start"]
        assert text_of(await process.ask()) == "model new"
        config = (await process.http.get(f"{process.admin_url}/config")).json()
        assert config["listen"] == "127.0.0.1:0", "what is shown is what is in force"


def test_upstreams_that_did_not_change_are_kept():
    same, before, after = (Upstream(base_url=f"http://{host}") for host in "abc")
    now = Config(upstreams={"same": same, "other": before, "gone": before}, routes=())
    then = Config(upstreams={"same": same, "other": after, "new": after}, routes=())
    change = change_to(then, now=now)
    assert change.kept == {"same"}
    assert change.config == then
    assert change.ignored == ()


def test_what_is_bound_or_opened_stays_as_it_is():
    now = Config(upstreams={}, routes=(), tls=Tls(cert="a", key="a"))
    route = Route(to="a")
    then = Config(
        upstreams={},
        routes=(route,),
        listen="127.0.0.1:9",
        workers=3,
        store=Store(path="x"),
        admin=Admin(listen="127.0.0.1:10", tls=Tls(cert="b", key="b"), hosts=("h",)),
        tls=Tls(cert="c", key="c"),
    )
    change = change_to(then, now=now)
    assert [line.split(":")[0] for line in change.ignored] == [
        "listen", "workers", "store", "admin.listen", "admin.tls",
    ]  # fmt: skip
    assert change.config == Config(
        upstreams={},
        routes=(route,),
        admin=Admin(hosts=("h",)),
        tls=Tls(cert="c", key="c"),
    )
