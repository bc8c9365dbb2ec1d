"""Export, import and warm over real sockets."""

import asyncio
import base64
import contextlib
import json
import shutil
from dataclasses import dataclass

from commandline import run_command
from misbehaving import serving
from running import completion, good, running

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0", token: s3cret}}
upstreams: {{main: {{base_url: "{upstream}/v1"}}}}
policies: {{standard: {{ttl: 1h}}}}
routes: [{{match: {{model: "test-*"}}, to: main, cache: standard, retries: 0}}]
store: {store}
"""


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)


async def rejoinder(p, *arguments, token="s3cret") -> Done:
    environ = {"REJOINDER_ADMIN": p.admin_url, "REJOINDER_ADMIN_TOKEN": token}
    done = await asyncio.to_thread(run_command, *arguments, environ=environ)
    return Done(done.returncode, done.stdout, done.stderr)


@contextlib.asynccontextmanager
async def served(tmp_path, store="{}"):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, store=store), tmp_path) as p,
    ):
        p.http.headers["authorization"] = "Bearer s3cret"
        yield upstream, p


async def copied_store(tmp_path):
    """Two files that began as one: the same secret and the same counters."""
    async with served(tmp_path, f"{{path: {tmp_path}/a.db}}"):
        pass
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    return f"{{path: {tmp_path}/a.db}}", f"{{path: {tmp_path}/b.db}}"


def tagged(*tags):
    return {"headers": {"x-cache-tags": ",".join(tags)}}


def words(answer):
    return answer.headers["x-cache"]


def rewritten(file, change):
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    change(lines)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


async def test_what_was_purged_after_an_export_does_not_come_back_by_its_import(tmp_path):
    file = tmp_path / "e.jsonl"
    async with served(tmp_path) as (_, p):
        await p.ask("bound", **tagged("doc:42"))
        await p.ask("free")
        exported = await rejoinder(p, "export", file)
        await p.purge(tags=["doc:42"])
        imported = await rejoinder(p, "import", file, "--json")
        lenient = await rejoinder(p, "import", file, "--lenient")
        assert words(await p.ask("free")) == "exact"
        assert words(await p.ask("bound", **tagged("doc:42"))) == "miss"
    assert (exported.code, exported.err) == (0, "exported 2 answers\n")
    assert imported.code == 1
    # Newest first: the purged one is the second line.
    assert imported.json["problems"] == [{"line": 2, "reason": "it was purged after it was made"}]
    assert (imported.json["present"], imported.json["stored"]) == (1, 0)
    assert lenient.code == 0


async def test_a_replica_with_the_stores_secret_serves_what_is_imported(tmp_path):
    a, b = await copied_store(tmp_path)
    file = tmp_path / "e.jsonl"
    async with served(tmp_path, a) as (_, p):
        plain = await p.ask("plain")
        streamed = await p.ask("streamed", stream=True)
        await p.ask("of another tenant", key="sk-two")
        assert (await rejoinder(p, "export", file)).code == 0
    async with served(tmp_path, b) as (upstream, p):
        imported = await rejoinder(p, "import", file, "--json")
        assert imported.code == 0, imported.err
        assert imported.json["stored"] == 3
        again = await p.ask("plain")
        assert (words(again), again.content) == ("exact", plain.content)
        again = await p.ask("streamed", stream=True)
        assert (words(again), again.content) == ("exact", streamed.content)
        assert words(await p.ask("of another tenant", key="sk-two")) == "exact"
        assert upstream.requests == []
        assert words(await p.ask("of another tenant", key="sk-one")) == "miss"
        second = await rejoinder(p, "import", file, "--json")
        assert (second.code, second.json["stored"], second.json["present"]) == (0, 0, 3)
        await p.purge(all=True)
        assert words(await p.ask("plain")) == "miss"


async def test_a_tag_in_letters_of_any_alphabet_is_exported_and_one_too_long_refused(tmp_path):
    async with served(tmp_path) as (_, p):
        await p.ask("Why?", cache={"tags": ["doc:%C3%A4"]})
        found = await p.http.get(f"{p.admin_url}/cache/export", params={"tag": "doc:ä"})
        assert len(found.text.splitlines()) == 2, "the entry, and the mark at the end"
        wrong = await p.http.get(f"{p.admin_url}/cache/export", params={"tag": "x" * 300})
        assert wrong.status_code == 400


async def test_a_store_older_than_the_export_takes_it_only_when_the_operator_vouches(tmp_path):
    a, b = await copied_store(tmp_path)
    file = tmp_path / "e.jsonl"
    async with served(tmp_path, a) as (_, p):
        await p.purge(tags=["doc:1"])
        await p.ask(**tagged("doc:42"))
        await rejoinder(p, "export", file)
    async with served(tmp_path, b) as (_, p):
        refused = await rejoinder(p, "import", file)
        assert (refused.code, "is older than the export" in refused.err) == (1, True)
        assert words(await p.ask("another")) == "miss"
        vouched = await rejoinder(p, "import", file, "--as-of-now")
        assert vouched.code == 0, vouched.err
        assert words(await p.ask(**tagged("doc:42"))) == "exact"
        # This store's first purge has a number that the entry had already seen where it was made.
        await p.purge(tags=["doc:42"])
        assert words(await p.ask(**tagged("doc:42"))) == "miss"


async def test_a_store_with_another_secret_refuses_and_says_why(tmp_path):
    file = tmp_path / "e.jsonl"
    async with served(tmp_path) as (_, p):
        await p.ask()
        await rejoinder(p, "export", file)
    async with served(tmp_path) as (_, p):
        imported = await rejoinder(p, "import", file, "--as-of-now")
        assert words(await p.ask()) == "miss"
    assert imported.code == 1
    assert imported.err.startswith("line 1: it comes from a store with another secret")


async def test_an_answer_put_under_another_tenants_key_is_refused(tmp_path):
    file = tmp_path / "e.jsonl"

    def swap(lines):
        one, two = lines[0]["entry"], lines[1]["entry"]
        one["key"], two["key"] = two["key"], one["key"]

    a, b = await copied_store(tmp_path)
    async with served(tmp_path, a) as (_, p):
        await p.ask(key="sk-one")
        await p.ask(key="sk-two")
        await rejoinder(p, "export", file)
    rewritten(file, swap)
    async with served(tmp_path, b) as (_, p):
        imported = await rejoinder(p, "import", file)
        assert words(await p.ask(key="sk-one")) == "miss"
    assert imported.err.splitlines()[:2] == [
        "line 1: it was altered after its export",
        "line 2: it was altered after its export",
    ]


async def test_broken_lines_are_named_and_the_others_are_taken(tmp_path):
    a, b = await copied_store(tmp_path)
    file = tmp_path / "e.jsonl"
    async with served(tmp_path, a) as (_, p):
        await p.ask("one")
        await p.ask("two")
        await rejoinder(p, "export", file)
    first, second, _ = file.read_text().splitlines()
    wrong_type = json.loads(second)
    wrong_type["entry"]["tags"] = "doc:42"
    later = {**json.loads(second), "format": 2}
    broken = [first[:99], "", json.dumps(later), json.dumps(wrong_type), '{"format": 1}']
    file.write_text("\n".join([*broken, second, first]))
    async with served(tmp_path, b) as (_, p):
        imported = await rejoinder(p, "import", file)
        assert words(await p.ask("one")) == words(await p.ask("two")) == "exact"
    assert imported.code == 1
    said = imported.err.splitlines()
    assert "no mark at its end" in said[0]
    assert [line.partition(":")[0] for line in said[1:]] == ["line 1", "line 3", "line 4", "line 5"]
    assert "format 2" in said[2]
    assert imported.out == "stored 2 answers; 0 were there, 0 had expired, 4 refused\n"


async def test_an_export_that_broke_off_goes_on_behind_its_last_mark(tmp_path):
    file = tmp_path / "e.jsonl"
    async with served(tmp_path) as (_, p):
        for number in range(53):
            await p.ask(f"question {number}")
        await rejoinder(p, "export", file)
        whole = file.read_bytes()
        # Two pages; the second is cut in the middle of a line.
        file.write_bytes(whole[:-300])
        resumed = await rejoinder(p, "export", file, "--resume")
        assert (resumed.code, resumed.err) == (0, "exported 3 answers\n")
        assert file.read_bytes() == whole
        again = await rejoinder(p, "export", file, "--resume", "--json")
        assert "is whole" in again.err
        assert json.loads(again.out) == {"file": str(file), "entries": 0}
        told = await rejoinder(p, "export", file, "--json")
        assert json.loads(told.out) == {"file": str(file), "entries": 53}
        assert file.stat().st_mode & 0o077 == 0


async def test_an_export_is_filtered_readable_and_without_secrets(tmp_path):
    async with served(tmp_path) as (_, p):
        secret = p.proxy._store.secret
        await p.ask("tagged", key="sk-hush", **tagged("doc:42"))
        await p.ask("other", stream=True)
        exported = await rejoinder(p, "export", "--tag", "doc:42", "--readable")
        every = await rejoinder(p, "export", "--readable")
    line, mark = map(json.loads, exported.out.splitlines())
    assert line["request"]["messages"][0]["content"] == "tagged"
    assert line["answer"] == json.loads(completion())
    assert mark == {"format": 1, "cursor": None}
    assert len(every.out.splitlines()) == 3
    for hidden in ("sk-hush", "s3cret", secret.hex(), base64.b64encode(secret).decode()):
        assert hidden not in every.out


async def test_warming_with_requests_makes_exact_hits_of_the_keys_tenant(tmp_path):
    body = {"model": "test-1", "messages": [{"role": "user", "content": "bare"}]}
    wrapped = {**body, "messages": [{"role": "user", "content": "wrapped"}]}
    file = tmp_path / "w.jsonl"
    lines = [json.dumps(body), "{broken", json.dumps({"request": wrapped})]
    lines.append(json.dumps({"request": {"model": "unknown"}}))
    file.write_text("\n".join(lines))
    async with served(tmp_path) as (upstream, p):
        command = ("warm", file, "--url", f"{p.url}/v1", "--api-key", "sk-one", "--json")
        first, second = await rejoinder(p, *command), await rejoinder(p, *command)
        assert len(upstream.requests) == 2
        assert words(await p.ask("bare")) == words(await p.ask("wrapped")) == "exact"
        assert words(await p.ask("bare", key="sk-two")) == "miss"
    assert first.code == second.code == 1
    assert (first.json["misses"], first.json["hits"], first.json["failed"]) == (2, 0, 2)
    assert (second.json["misses"], second.json["hits"]) == (0, 2)
    assert {problem["line"] for problem in first.json["problems"]} == {2, 4}


async def test_warming_with_pairs_asks_no_upstream_and_passes_the_write_gate(tmp_path):
    def pair(text, answer, **more):
        request = {"model": "test-1", "messages": [{"role": "user", "content": text}], **more}
        return json.dumps({"request": request, "response": json.loads(answer)})

    cut = completion().replace(b'"finish_reason": "stop"', b'"finish_reason": null')
    lines = [
        pair("known", completion("From the file.")),
        pair("half", cut),
        pair("unstored", completion(), cache={"no-store": True}),
        json.dumps({"response": {}}),
    ]
    file = tmp_path / "w.jsonl"
    file.write_text("\n".join(lines))
    async with served(tmp_path) as (upstream, p):
        command = ("warm", file, "--url", "http://127.0.0.1:1/v1", "--api-key", "sk-one")
        first = await rejoinder(p, *command)
        again = await rejoinder(p, *command, "--json")
        hit = await p.ask("known")
        assert upstream.requests == []
        assert words(hit) == "exact"
        assert hit.json()["choices"][0]["message"]["content"] == "From the file."
        assert words(await p.ask("known", key="sk-two")) == "miss"
        assert words(await p.ask("half")) == "miss"
        await p.purge(models=["test-1"])
        assert words(await p.ask("known")) == "miss"
    assert first.code == 1
    assert "pairs: 1 stored, 0 were there; 3 failed" in first.out
    assert [line.partition(":")[0] for line in first.err.splitlines()] == [
        "line 2",
        "line 3",
        "line 4",
    ]
    assert (again.json["stored"], again.json["present"]) == (0, 1)


async def test_a_purge_while_pairs_come_covers_those_that_come_after_it(tmp_path):
    def line(number, text):
        request = {"model": "test-1", "messages": [{"role": "user", "content": text}]}
        headers = {"authorization": "Bearer sk-one", "x-cache-tags": "doc:42"}
        whole = {"line": number, "request": request, "headers": headers}
        return json.dumps({**whole, "response": json.loads(completion())}).encode() + b"\n"

    async with served(tmp_path) as (_, p):
        cached = {"headers": {"cache-control": "only-if-cached", "x-cache-tags": "doc:42"}}

        async def lines():
            yield line(1, "before")
            while words(await p.ask("before", **cached)) != "exact":
                await asyncio.sleep(0)
            await p.purge(tags=["doc:42"])
            yield line(2, "after")

        answer = await p.http.post(f"{p.admin_url}/cache/pairs", content=lines())
        assert words(await p.ask("after", **tagged("doc:42"))) == "miss"
    assert (answer.json()["stored"], answer.json()["refused"]) == (1, 1)


async def test_without_the_admin_token_nothing_goes_out_or_in(tmp_path):
    file = tmp_path / "e.jsonl"
    async with served(tmp_path) as (_, p):
        await p.ask()
        await rejoinder(p, "export", file)
        for command in ("export", ("import", file)):
            arguments = (command,) if isinstance(command, str) else command
            done = await rejoinder(p, *arguments, token="wrong")
            assert (done.code, done.out) == (1, "")
            assert "answered 401" in done.err
