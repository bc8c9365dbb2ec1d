"""Purges that name things as clients do."""

import pytest
from misbehaving import plain, serving
from running import CONFIG, completion, running


async def answer(_request, writer):
    """Its tag is in Latin-1, as Starlette and others write headers."""
    whole = plain(completion(), headers=("cache-tag: doc:caf\u00e9",))
    writer.write(whole.replace("\u00e9".encode(), b"\xe9"))


@pytest.mark.parametrize("model", ["fast", "test-1", "own"])
async def test_a_model_is_purged_by_its_alias_its_name_and_what_the_upstream_is_asked_for(
    tmp_path, model
):
    async with serving(answer) as upstream:
        config = CONFIG.format(upstream=upstream.url, options="", policy="").replace(
            "cache: standard", "cache: standard, model: {rewrite: own}"
        )
        config += "aliases: {fast: test-1}\n"
        async with running(config, tmp_path) as p:
            await p.ask(model="fast")
            purged = await p.purge(models=[model])
            after = await p.ask(model="fast")
    assert purged["matched"] == 1
    assert after.headers["x-cache"] == "miss"


@pytest.mark.parametrize("tag", ["doc:caf\u00e9", "doc:caf%c3%a9", "doc:caf%C3%A9"])
async def test_an_answer_is_found_and_purged_by_a_tag_however_it_is_written(tmp_path, tag):
    async with (
        serving(answer) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        await p.ask()
        listed = await p.http.get(f"{p.admin_url}/cache/entries", params={"tag": tag})
        purged = await p.purge(tags=[tag])
        after = await p.ask()
    assert len(listed.json()["entries"]) == 1
    assert purged["matched"] == 1
    assert after.headers["x-cache"] == "miss"


async def test_callers_behind_one_key_whom_a_proxy_names_get_their_own_answers(tmp_path):
    async def greet(request, writer):
        writer.write(plain(completion(request.header("x-forwarded-user"))))

    async with (
        serving(greet) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        answers = [
            await p.ask("Who am I?", headers={"x-forwarded-user": name, "x-forwarded-for": address})
            for name, address in (("alice", "1"), ("bob", "1"), ("alice", "2"))
        ]
    assert [answered.headers["x-cache"] for answered in answers] == ["miss", "miss", "exact"]
    assert "bob" in answers[1].text
