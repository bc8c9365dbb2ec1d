"""What an upstream says of the keeping of its answers, by itself and over sockets."""

import asyncio

import pytest
from embedding_server import Embedder
from misbehaving import plain, serving
from running import BEGIN, CONFIG, END, chunk, completion, running

from proxy.answer.control import Control, control_of, fits, varied_by

BOTH = ("no-store", "max-age")


def config(upstream, *, options: str = "", policy: str = "") -> str:
    return CONFIG.format(upstream=upstream.url, options=options, policy=policy)


@pytest.mark.parametrize(
    ("value", "honour", "expected"),
    [
        (b"no-store", BOTH, Control(no_store=True)),
        (b"no-store", ("max-age",), Control()),
        (b"No-Store, max-age=60", BOTH, Control(no_store=True, lifetime_s=60)),
        (b"max-age=60", ("no-store",), Control()),
        (b'max-age="60"', BOTH, Control(lifetime_s=60)),
        (b"max-age=60, s-maxage=5", BOTH, Control(lifetime_s=5)),
        (b"max-age=soon", BOTH, Control(lifetime_s=0)),
        (b"no-cache, private", BOTH, Control()),
        (b"max-age=60, no-store", (), Control()),
    ],
)
def test_only_what_is_honoured_counts(value, honour, expected):
    assert control_of(((b"cache-control", value),), honour) == expected


def test_the_age_of_an_answer_is_taken_off():
    headers = ((b"cache-control", b"max-age=60"), (b"age", b"20"))
    assert control_of(headers, BOTH).lifetime_s == 40
    assert control_of(((b"cache-control", b"max-age=1"), (b"age", b"20")), BOTH).lifetime_s == 0


def test_what_varies_fits_requests_that_say_the_same():
    request = ((b"user-agent", b"one"), (b"x-other", b"1"))
    varied = varied_by(((b"vary", b"User-Agent, Accept-Encoding"),), request, own_credential=True)
    assert varied is not None
    assert fits(varied, ((b"user-agent", b" one "), (b"x-other", b"2")))
    assert not fits(varied, ((b"user-agent", b"two"),))
    assert not fits(varied, ())


@pytest.mark.parametrize(
    ("value", "own", "is_shared"),
    [
        (b"*", True, False),
        (b"Authorization", True, True),
        (b"Authorization", False, False),
        (b"Accept-Encoding", False, True),
        (b"", False, True),
    ],
)
def test_what_varies_by_the_credential_needs_entries_of_each(value, own, is_shared):
    found = varied_by(((b"vary", value),), ((b"authorization", b"x"),), own_credential=own)
    assert (found == ()) is is_shared
    assert (found is None) is not is_shared


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("headers", "options", "kept"),
    [
        (("cache-control: no-store",), "", True),
        (("cache-control: no-store",), ", honour: [no-store]", False),
        (("cache-control: max-age=0",), ", honour: [no-store]", True),
        (("cache-control: max-age=0",), ", honour: [max-age]", False),
        (("cache-control: max-age=600",), ", honour: [no-store, max-age]", True),
        (("vary: *",), "", False),
        (("vary: Accept-Encoding, Origin",), "", True),
    ],
)
async def test_an_answer_is_kept_as_its_upstream_says(tmp_path, stream, headers, options, kept):
    async def answer(_request, writer):
        if stream:
            head, _, rest = (BEGIN + chunk({"content": "x"}) + END).partition(b"\r\n")
            lines = "".join(f"{header}\r\n" for header in headers).encode()
            writer.write(head + b"\r\n" + lines + rest)
        else:
            writer.write(plain(completion(), headers=headers))

    async with (
        serving(answer) as upstream,
        running(config(upstream, options=options), tmp_path) as p,
    ):
        answers = [await p.ask(stream=stream) for _ in range(2)]
    assert [a.headers["x-cache"] for a in answers] == ["miss", "exact" if kept else "miss"]


async def test_an_honoured_lifetime_stands_in_for_the_policy_s(tmp_path):
    async def answer(_request, writer):
        writer.write(plain(completion(), headers=("cache-control: max-age=7200", "age: 200")))

    async with (
        serving(answer) as upstream,
        running(
            config(upstream, options=", honour: [max-age]", policy=", jitter: 0"), tmp_path
        ) as p,
    ):
        await p.ask()
        again = await p.ask()
        await p.ask("short", cache={"ttl": 60})
        short = await p.ask("short", cache={"ttl": 60})
    ttls = [int(a.headers["cache-status"].split("ttl=")[1].split(";")[0]) for a in (again, short)]
    assert 6900 < ttls[0] <= 7000
    assert ttls[1] <= 60


async def test_an_answer_that_varies_by_a_header_is_for_those_who_say_the_same(tmp_path):
    async def answer(request, writer):
        text = f"for {request.header('user-agent')}"
        writer.write(plain(completion(text), headers=("vary: user-agent",)))

    async with serving(answer) as upstream, running(config(upstream), tmp_path) as p:
        words = []
        for agent in ("one", "one", "two", "two", "one"):
            got = await p.ask(headers={"user-agent": agent})
            assert got.json()["choices"][0]["message"]["content"] == f"for {agent}"
            words.append(got.headers["x-cache"])
    assert words[:4] == ["miss", "exact", "miss", "exact"]


async def test_a_flight_whose_answer_varies_is_not_for_those_who_say_something_else(tmp_path):
    go_on = asyncio.Event()

    async def answer(request, writer):
        await go_on.wait()
        text = f"for {request.header('user-agent')}"
        writer.write(plain(completion(text), headers=("vary: user-agent",)))

    async with serving(answer) as upstream, running(config(upstream), tmp_path) as p:
        asking = [asyncio.create_task(p.ask(headers={"user-agent": "one"}))]
        while not upstream.requests:
            await asyncio.sleep(0.01)
        asking += [
            asyncio.create_task(p.ask(headers={"user-agent": agent})) for agent in ("one", "two")
        ]
        while len(p.proxy.listeners()) < 3:
            await asyncio.sleep(0.01)
        go_on.set()
        answers = await asyncio.gather(*asking)
    texts = [a.json()["choices"][0]["message"]["content"] for a in answers]
    assert texts == ["for one", "for one", "for two"]
    assert [a.headers["x-cache"] for a in answers] == ["miss", "coalesced", "miss"]


async def test_embeddings_obey_too(tmp_path):
    embedder = Embedder(headers=("cache-control: no-store",))
    async with (
        serving(embedder) as upstream,
        running(config(upstream, options=", honour: [no-store]"), tmp_path) as p,
    ):
        body = {"model": "test-1", "input": ["a"]}
        words = [
            (await p.http.post(f"{p.url}/v1/embeddings", json=body)).headers["x-cache"]
            for _ in range(2)
        ]
    assert words == ["miss", "miss"]


async def test_who_asks_counts_for_an_application(tmp_path):
    async def answer(_request, writer):
        writer.write(plain(completion()))

    async with serving(answer) as upstream:
        words = []
        for options in ("", ", kind: application"):
            async with running(config(upstream, options=options), tmp_path) as p:
                for more in ({"user": "a"}, {"user": "b"}, {"user": "b", "metadata": {"x": "1"}}):
                    words.append((await p.ask(**more)).headers["x-cache"])
    assert words == ["miss", "exact", "exact", "miss", "miss", "miss"]


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({}, "bypass"),
        ({"temperature": None}, "bypass"),
        ({"temperature": 0.6}, "bypass"),
        ({"temperature": 0.5}, "exact"),
        ({"temperature": 0}, "exact"),
    ],
)
async def test_only_what_is_as_little_random_as_the_policy_wants_is_kept(tmp_path, more, word):
    async def answer(_request, writer):
        writer.write(plain(completion()))

    policy = ", when: {temperature_at_most: 0.5}"
    async with (
        serving(answer) as upstream,
        running(config(upstream, policy=policy), tmp_path) as p,
    ):
        await p.ask(**more)
        again = await p.ask(**more)
    assert again.headers["x-cache"] == word
    assert ("detail=temperature" in again.headers["cache-status"]) is (word == "bypass")


@pytest.mark.parametrize(
    ("never", "question", "word"),
    [
        ("", "What is the weather in Paris today?", "exact"),
        (", never: [volatile]", "What is the weather in Paris today?", "bypass"),
        (", never: [personal]", "What is the weather in Paris today?", "exact"),
        (", never: [personal]", "What is the balance of my account?", "bypass"),
        (", never: [volatile, personal]", "What is a cache?", "exact"),
    ],
)
async def test_what_a_policy_never_keeps_is_a_bypass(tmp_path, never, question, word):
    async def answer(_request, writer):
        writer.write(plain(completion()))

    async with serving(answer) as upstream, running(config(upstream, policy=never), tmp_path) as p:
        await p.ask(question)
        again = await p.ask(question)
        named = [await p.ask(question, cache={"ttl": 60}) for _ in range(2)]
    assert again.headers["x-cache"] == word
    assert named[1].headers["x-cache"] == "exact"
