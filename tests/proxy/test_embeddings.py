"""Embeddings cached one input at a time, over real sockets."""

import asyncio
import json

import httpx
import pytest
from embedding_server import Embedder, in_base64, vector_of
from misbehaving import plain, serving
from running import CONFIG, Running, running


def config(upstream, policy: str = "") -> str:
    return CONFIG.format(upstream=upstream.url, options="", policy=policy)


async def embed(p: Running, given, *, key: str = "sk-one", headers=None, **more) -> httpx.Response:
    return await p.http.post(
        f"{p.url}/v1/embeddings",
        json={"model": "test-1", "input": given, **more},
        headers={"authorization": f"Bearer {key}", **(headers or {})},
    )


def vectors(answer: httpx.Response) -> list:
    assert answer.status_code == 200, answer.text
    data = answer.json()["data"]
    assert [item["index"] for item in data] == list(range(len(data)))
    return [item["embedding"] for item in data]


async def listed_tokens(p: Running) -> list[int]:
    """Of the last requests, newest first."""
    recent = await p.http.get(f"{p.admin_url}/cache/recent")
    return [one["input_tokens"] for one in recent.json()["requests"]]


def said(answer: httpx.Response) -> tuple[str, str]:
    return answer.headers["x-cache"], answer.headers["cache-status"].rpartition("detail=")[2]


async def test_only_what_is_not_known_is_sent_and_order_is_restored(tmp_path):
    known = [f"known text {n}" for n in range(60)]
    new = [f"new text {n}" for n in range(40)]
    mixed = [text for pair in zip(known[:40], new, strict=True) for text in pair] + known[40:]
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        first = await embed(p, known)
        second = await embed(p, mixed)
        third = await embed(p, list(reversed(mixed)))
        tokens = await listed_tokens(p)
    assert said(first)[0] == "miss"
    assert said(second) == ("miss", '"known=60,joined=0,sent=40,absent"')
    assert "fwd=partial; stored" in second.headers["cache-status"]
    assert said(third) == ("exact", "exact")
    assert embedder.asked == [known, new]
    assert vectors(first) == [vector_of(text) for text in known]
    assert vectors(second) == [vector_of(text) for text in mixed]
    assert vectors(third) == [vector_of(text) for text in reversed(mixed)]
    assert second.json()["usage"]["prompt_tokens"] == sum(map(len, mixed))
    assert second.json()["model"] == "test-1"
    assert tokens == [sum(map(len, texts)) for texts in (mixed, mixed, known)]


async def test_a_whole_miss_is_passed_on_as_it_came(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        answer = await embed(p, ["a", "b"])
    assert answer.content == embedder.answer({}, ["a", "b"])


@pytest.mark.parametrize("first", ["float", "base64", None])
@pytest.mark.parametrize("then", ["float", "base64", None])
async def test_one_entry_serves_both_spellings(tmp_path, first, then):
    embedder = Embedder()
    spell = {"float": lambda v: v, None: lambda v: v, "base64": in_base64}

    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        one = await embed(p, ["a", "b"], **({"encoding_format": first} if first else {}))
        two = await embed(p, ["b", "a"], **({"encoding_format": then} if then else {}))
    assert said(two)[0] == "exact"
    assert vectors(one) == [spell[first](vector_of(text)) for text in "ab"]
    assert vectors(two) == [spell[then](vector_of(text)) for text in "ba"]


async def test_an_unknown_spelling_is_not_cached(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        answers = [await embed(p, "a", encoding_format="int8") for _ in range(2)]
    assert [said(a) for a in answers] == [("bypass", "encoding_format")] * 2
    assert len(embedder.asked) == 2


@pytest.mark.parametrize("given", ["text", ["text"], [1, 2, 3], [[1, 2, 3]], [[1], [2, 3]]])
async def test_every_form_of_input_is_found_again(tmp_path, given):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        first, again = [await embed(p, given) for _ in range(2)]
    assert (said(first)[0], said(again)[0]) == ("miss", "exact")
    assert first.json() == again.json()
    assert embedder.bodies == [{"model": "test-1", "input": given}]


async def test_a_text_alone_and_in_a_list_are_the_same_input(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        await embed(p, "text")
        await embed(p, [7, 8])
        again = await embed(p, ["text"])
        ids = await embed(p, [[7, 8]])
    assert said(again)[0] == said(ids)[0] == "exact"


async def test_a_text_of_digits_and_token_ids_are_different_inputs(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        await embed(p, "[1,2]")
        ids = await embed(p, [1, 2])
    assert said(ids)[0] == "miss"


async def test_dimensions_make_another_vector(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        await embed(p, ["a"])
        small = await embed(p, ["a"], dimensions=2)
        again = await embed(p, ["a"], dimensions=2)
    assert (said(small)[0], said(again)[0]) == ("miss", "exact")
    assert vectors(again) == [vector_of("a", dimensions=2)]


async def test_what_occurs_twice_in_a_batch_is_sent_once(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        answer = await embed(p, ["a", "bb", "a", "a"])
    assert embedder.asked == [["a", "bb"]]
    assert vectors(answer) == [vector_of(text) for text in ("a", "bb", "a", "a")]
    assert answer.json()["usage"] == {"prompt_tokens": 5, "total_tokens": 5}


async def test_shares_of_the_usage_add_up_to_what_the_upstream_counted(tmp_path):
    embedder = Embedder(num_tokens=lambda piece: 1 if piece == "a" else 6)
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        first = await embed(p, ["a", "b", "ccc"])
        again = await embed(p, ["ccc", "a", "b"])
        parts = [await embed(p, text) for text in ("a", "b", "ccc")]
    assert first.json()["usage"] == again.json()["usage"]
    assert first.json()["usage"]["prompt_tokens"] == 13
    assert sum(part.json()["usage"]["prompt_tokens"] for part in parts) == 13


async def test_numbers_come_back_as_the_upstream_wrote_them(tmp_path):
    numbers = "[0.1, -0.123456789, 1e-7]"
    body = (
        '{"object":"list","data":[{"object":"embedding","index":0,"embedding":%s,"extra":[1.50]}],'
        '"model":"test-1","usage":{"prompt_tokens":1,"total_tokens":1},"note":"kept"}'
    )

    async def answer(_request, writer):
        writer.write(plain((body % numbers).encode()))

    async with serving(answer) as upstream, running(config(upstream), tmp_path) as p:
        await embed(p, "a")
        again = await embed(p, "a")
        packed = await embed(p, "a", encoding_format="base64")
    assert said(again)[0] == said(packed)[0] == "exact"
    assert numbers in again.text
    assert '"extra":[1.50]' in again.text
    assert again.json()["note"] == "kept"
    assert vectors(packed) == [in_base64(json.loads(numbers))]


async def test_an_sdk_gets_the_same_vectors_from_the_cache(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        client = p.openai()
        answers = [
            await client.embeddings.create(model="test-1", input=["a", "b"]) for _ in range(2)
        ]
        await client.close()
    assert embedder.bodies[0]["encoding_format"] == "base64"
    assert len(embedder.bodies) == 1
    for answer in answers:
        assert [item.embedding for item in answer.data] == [vector_of("a"), vector_of("b")]
        assert answer.usage.prompt_tokens == 2


async def test_credentials_and_namespaces_share_no_input(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        await embed(p, ["a", "b"])
        other_key = await embed(p, ["a", "b"], key="sk-two")
        other_space = await embed(p, ["a", "b"], cache={"namespace": "x"})
    assert said(other_key)[0] == said(other_space)[0] == "miss"
    assert len(embedder.asked) == 3


async def test_a_purged_tag_covers_its_inputs_and_no_others(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        await embed(p, ["a", "b"], cache={"tags": ["doc:1"]})
        await embed(p, ["c"])
        purged = await p.purge(tags=["doc:1"])
        after = await embed(p, ["a", "c", "b"])
    assert purged["matched"] == 2
    assert said(after) == ("miss", '"known=1,joined=0,sent=2,absent"')
    assert embedder.asked[-1] == ["a", "b"]


async def test_an_input_that_lacks_a_tag_of_the_request_is_made_again_under_both(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        await embed(p, ["a"], cache={"tags": ["doc:1"]})
        second = await embed(p, ["a"], cache={"tags": ["doc:2"]})
        third = await embed(p, ["a"])
        await p.purge(tags=["doc:1"])
        after = await embed(p, ["a"])
    assert [said(a)[0] for a in (second, third, after)] == ["miss", "exact", "miss"]


async def test_a_purge_while_vectors_are_made_keeps_them_from_being_stored(tmp_path):
    embedder = Embedder(go_on=asyncio.Event())
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        tags = {"cache": {"tags": ["doc:1"]}}
        made = asyncio.create_task(embed(p, ["a"], **tags))
        while not upstream.requests:
            await asyncio.sleep(0.01)
        await p.purge(tags=["doc:1"])
        later = asyncio.create_task(embed(p, ["a"], **tags))
        while len(upstream.requests) < 2:
            await asyncio.sleep(0.01)
        embedder.go_on.set()
        first, second = await made, await later
    assert (said(first)[0], said(second)[0]) == ("miss", "miss")
    assert "stored" not in first.headers["cache-status"]
    assert "stored" in second.headers["cache-status"]


async def test_batches_at_the_same_time_ask_for_each_input_once(tmp_path):
    embedder = Embedder(go_on=asyncio.Event())
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        asking = [asyncio.create_task(embed(p, ["a", "b"], encoding_format="base64"))]
        while not upstream.requests:
            await asyncio.sleep(0.01)
        asking.append(asyncio.create_task(embed(p, ["a", "b"])))
        asking.append(asyncio.create_task(embed(p, ["b", "c"])))
        while len(upstream.requests) < 2 or len(p.proxy.listeners()) < 4:
            await asyncio.sleep(0.01)
        embedder.go_on.set()
        first, same, overlapping = await asyncio.gather(*asking)
        tokens = await listed_tokens(p)
    assert embedder.asked == [["a", "b"], ["c"]]
    assert said(first)[0] == "miss"
    assert said(same) == ("coalesced", '"known=0,joined=2,sent=0,absent"')
    assert said(overlapping) == ("miss", '"known=0,joined=1,sent=1,absent"')
    assert vectors(same) == [vector_of("a"), vector_of("b")]
    assert vectors(overlapping) == [vector_of("b"), vector_of("c")]
    assert tokens == [2, 2, 2]


async def test_the_last_client_of_a_batch_leaving_closes_the_connection(tmp_path):
    embedder = Embedder(go_on=asyncio.Event())
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        asking = asyncio.create_task(embed(p, ["a", "b"]))
        while not upstream.requests:
            await asyncio.sleep(0.01)
        asking.cancel()
        await upstream.client_left.wait()
        assert p.proxy.listeners() == ()


async def test_a_model_that_changed_its_name_never_mixes_with_what_is_known(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        await embed(p, ["a", "b"])
        embedder.model = "test-1-new"
        answer = await embed(p, ["a", "b", "c"])
        again = await embed(p, ["c", "a"])
    assert embedder.asked == [["a", "b"], ["c"], ["a", "b", "c"]]
    assert vectors(answer) == [vector_of(text, model="test-1-new") for text in "abc"]
    assert vectors(again) == [vector_of(text, model="test-1-new") for text in "ca"]
    assert said(again)[0] == "exact"


async def test_a_fallback_s_vectors_never_stand_beside_the_primary_s(tmp_path):
    failing = [False]
    primary, spare = Embedder(), Embedder()
    spare.answer = lambda body, pieces: json.dumps(
        {
            "data": [{"index": i, "embedding": [9.0]} for i in range(len(pieces))],
            "model": "test-1",
        }
    ).encode()

    async def first(request, writer):
        if failing[0]:
            writer.write(plain(b"{}", status="500 Oops"))
        else:
            await primary(request, writer)

    async with serving(first) as one, serving(spare) as two:
        text = config(one).replace(
            "to: main, cache: standard", "to: [main, spare], cache: standard"
        )
        text = text.replace("policies:", f'  spare: {{base_url: "{two.url}"}}\npolicies:')
        async with running(text, tmp_path) as p:
            await embed(p, ["a"])
            failing[0] = True
            fallen = await embed(p, ["a", "b"])
            failing[0] = False
            well = await embed(p, ["a", "b"])
    assert vectors(fallen) == [[9.0], [9.0]]
    assert vectors(well) == [vector_of("a"), vector_of("b")]
    assert said(well) == ("miss", '"known=1,joined=0,sent=1,absent"')


async def test_a_refusal_of_a_part_is_asked_for_again_as_the_client_wrote_it(tmp_path):
    async def answer(request, writer):
        given = json.loads(request.body)["input"]
        bad = [n for n, text in enumerate(given) if text == "bad"]
        if bad:
            message = {"error": {"message": f"input[{bad[0]}] is bad", "type": "x"}}
            writer.write(plain(json.dumps(message).encode(), status="400 Bad Request"))
        else:
            await Embedder()(request, writer)

    async with serving(answer) as upstream, running(config(upstream), tmp_path) as p:
        await embed(p, ["a"])
        refused = await embed(p, ["a", "bad"])
    assert refused.status_code == 400
    assert "input[1]" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer["data"].pop(),
        lambda answer: answer["data"].append(answer["data"][0]),
        lambda answer: answer["data"][0].update(index=1),
        lambda answer: answer["data"][0].update(embedding=None),
        lambda answer: answer["data"][0].update(embedding=[]),
        lambda answer: answer.update(error={"message": "half of it"}),
        lambda answer: answer.pop("data"),
    ],
)
async def test_what_is_not_one_vector_for_each_input_is_passed_on_and_not_stored(tmp_path, change):
    async def odd(request, writer):
        answer = json.loads(Embedder().answer({}, json.loads(request.body)["input"]))
        change(answer)
        writer.write(plain(json.dumps(answer).encode()))

    async with serving(odd) as upstream, running(config(upstream), tmp_path) as p:
        answers = [await embed(p, ["a", "b"]) for _ in range(2)]
    assert [said(a)[0] for a in answers] == ["miss", "miss"]
    assert len(upstream.requests) == 2
    assert all("stored" not in a.headers["cache-status"] for a in answers)


async def test_vectors_come_back_in_order_whatever_the_order_of_the_answer(tmp_path):
    async def shuffled(request, writer):
        answer = json.loads(Embedder().answer({}, json.loads(request.body)["input"]))
        answer["data"].reverse()
        writer.write(plain(json.dumps(answer).encode()))

    async with serving(shuffled) as upstream, running(config(upstream), tmp_path) as p:
        await embed(p, ["a", "b", "c"])
        again = await embed(p, ["a", "b", "c"])
    assert vectors(again) == [vector_of(text) for text in "abc"]


async def test_only_if_cached_never_asks(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        await embed(p, ["a"])
        only = {"cache-control": "only-if-cached"}
        known = await embed(p, ["a"], headers=only)
        partly = await embed(p, ["a", "b"], headers=only)
    assert said(known)[0] == "exact"
    assert (partly.status_code, said(partly)[0]) == (504, "miss")
    assert len(embedder.asked) == 1


async def test_no_cache_makes_all_of_it_again(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        await embed(p, ["a", "b"])
        again = await embed(p, ["a", "b"], headers={"cache-control": "no-cache"})
    assert "fwd=request; stored" in again.headers["cache-status"]
    assert embedder.asked == [["a", "b"], ["a", "b"]]


async def test_stale_inputs_are_served_and_refreshed_together(tmp_path):
    embedder = Embedder()
    policy = ", stale_while_revalidate: 1h"
    async with serving(embedder) as upstream, running(config(upstream, policy), tmp_path) as p:
        await embed(p, ["a", "b"])
        await p.purge(tags=["model:test-1"], soft=True)
        stale = await embed(p, ["a", "b"])
        while p.proxy.in_flight():
            await asyncio.sleep(0.01)
        fresh = await embed(p, ["a", "b"])
    assert said(stale) == ("stale", "stale-while-revalidate")
    assert said(fresh)[0] == "exact"
    assert embedder.asked == [["a", "b"], ["a", "b"]]


async def test_a_failing_upstream_leaves_stale_inputs_where_the_policy_says_so(tmp_path):
    failing = [False]
    embedder = Embedder()

    async def answer(request, writer):
        if failing[0]:
            writer.write(plain(b"<html>", status="503 Busy", kind="text/html"))
        else:
            await embedder(request, writer)

    policy = ", stale_if_error: 1h"
    async with serving(answer) as upstream, running(config(upstream, policy), tmp_path) as p:
        await embed(p, ["a", "b"])
        failing[0] = True
        await p.purge(tags=["model:test-1"], soft=True)
        stale = await embed(p, ["b", "a"])
        unknown = await embed(p, ["b", "c"])
    assert said(stale) == ("stale", "stale-if-error")
    assert vectors(stale) == [vector_of("b"), vector_of("a")]
    assert unknown.status_code == 503


async def test_a_purge_while_the_upstream_fails_beats_stale_inputs(tmp_path):
    embedder, failing = Embedder(), asyncio.Event()
    go_on = asyncio.Event()

    async def answer(request, writer):
        if upstream.requests[0] is request:
            await embedder(request, writer)
            return
        failing.set()
        await go_on.wait()
        writer.write(plain(b"{}", status="500 Oops"))

    policy = ", stale_if_error: 1h"
    async with serving(answer) as upstream, running(config(upstream, policy), tmp_path) as p:
        await embed(p, ["a", "b"], cache={"tags": ["doc:1"]})
        await p.purge(tags=["doc:1"], soft=True)
        asking = asyncio.create_task(embed(p, ["a", "b"]))
        await failing.wait()
        await p.purge(tags=["doc:1"])
        go_on.set()
        answered = await asking
    assert answered.status_code == 500


async def test_inputs_purged_while_the_rest_is_made_are_made_too(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream, running(config(upstream), tmp_path) as p:
        await embed(p, ["a"], cache={"tags": ["doc:1"]})
        embedder.go_on = asyncio.Event()
        asking = asyncio.create_task(embed(p, ["a", "b"]))
        while len(upstream.requests) < 2:
            await asyncio.sleep(0.01)
        await p.purge(tags=["doc:1"])
        embedder.go_on.set()
        answered = await asking
    assert vectors(answered) == [vector_of("a"), vector_of("b")]
    assert embedder.asked == [["a"], ["b"], ["a", "b"]]


async def test_shadow_mode_asks_for_all_of_it_and_says_what_was_known(tmp_path):
    embedder = Embedder()
    async with serving(embedder) as upstream:
        text = config(upstream).replace(
            "to: main, cache: standard", "to: main, cache: {mode: shadow, policy: standard}"
        )
        async with running(text, tmp_path) as p:
            await embed(p, ["a"])
            again = await embed(p, ["a"])
    assert said(again) == ("miss", '"known=0,joined=0,sent=1,shadow-exact"')
    assert len(embedder.asked) == 2
