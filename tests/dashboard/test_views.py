"""Each view of the dashboard in headless Chromium: it shows what the admin API says."""

import re

import pytest
from dashboard import CLOSE, PAIR, QUESTIONS, SCRIPT, cells, rows
from playwright.async_api import expect

from proxy.observing.hitrate import hit_rate

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_overview_shows_how_many_requests_each_tier_answered(dashboard):
    counted = (await dashboard.api("/cache/stats"))["requests"]
    async with dashboard.page("overview") as page:
        assert counted["semantic"]
        for outcome in ("exact", "semantic", "miss", "bypass"):
            shown = page.locator(f'[data-outcome="{outcome}"]')
            await expect(shown).to_have_text(str(counted.get(outcome, 0)))
        hits = counted["exact"] + counted["semantic"]
        rate = 100 * hits / sum(counted.values())
        tile = page.locator(".tile", has_text="Hit rate")
        await expect(tile).to_contain_text(f"{rate:.1f} %")
        await expect(tile).to_contain_text(f"{hits} hits")
        assert await page.locator(".chart svg rect.exact").count() > 1  # beside the legend's


async def test_the_hit_rate_of_the_page_is_that_of_stats(dashboard):
    # No two sums of these are the same.
    outcomes = ("exact", "semantic", "stale", "coalesced", "miss", "bypass", "left")
    requests = {outcome: 2**place for place, outcome in enumerate(outcomes)}
    script = "async (counted) => (await import('/dashboard/page/format.js')).hitRate(counted)"
    async with dashboard.page("overview") as page:
        assert await page.evaluate(script, requests) == hit_rate(requests)
    stats = await dashboard.api("/cache/stats")
    assert stats["hit_rate"] == hit_rate(stats["requests"]) > 0


async def test_the_charts_have_axes_units_and_a_table_of_their_numbers(dashboard):
    async with dashboard.page("overview") as page:
        chart = page.locator(".chart", has_text="Hit rate by tier")
        await chart.get_by_text("As numbers").click()
        total = await chart.locator("tbody td:nth-child(2)").all_inner_texts()
        counted = (await dashboard.api("/cache/stats"))["requests"]
        assert sum(map(int, total)) == sum(counted.values())
        assert "share of answers" in await chart.locator(".unit").inner_text()
        assert await chart.locator("text.tick", has_text="100 %").count() == 1


async def test_the_overview_shows_the_money_and_time_that_hits_saved(dashboard):
    async with dashboard.page("overview") as page:
        bins = (await dashboard.api("/dashboard/history"))["bins"]
        saved = sum(one["money_saved"].get("USD", 0.0) for one in bins)
        # Each answer has 5 tokens of input and 3 of output.
        hits = round(saved / 0.4)
        assert hits >= len(QUESTIONS)
        assert saved == pytest.approx(hits * 0.4)
        money = page.locator('[data-figure="overview-money-saved"]')
        await expect(money).to_contain_text(f"{saved:.2f} USD")
        seconds = sum(one["seconds_saved"] for one in bins)
        assert 0 < seconds < 60
        shown = await page.locator('[data-figure="overview-time-saved"] dd').first.inner_text()
        assert float(shown.removesuffix(" s")) == pytest.approx(seconds, rel=0.01)


async def test_requests_appear_while_one_looks_with_their_reasons(dashboard):
    async with dashboard.page("requests") as page:
        assert (await cells(page, "Outcome"))[0].endswith("bypass")
        before = await rows(page).count()
        await dashboard.proxy.ask(PAIR[0])
        await expect(rows(page)).to_have_count(before + 1)
        assert (await cells(page, "Outcome"))[0].endswith("exact")
        await page.get_by_label("Outcome").select_option("exact")
        await expect(rows(page).locator(".is-miss")).to_have_count(0)


async def test_a_request_leads_to_its_explanation_by_its_id(dashboard):
    asked = await dashboard.proxy.ask("Why is it explained?", cache={"tags": ["doc:why"]})
    request_id = asked.headers["x-request-id"]
    async with dashboard.page("requests") as page:
        await page.get_by_role("link", name=f"Explain {request_id}").click()
        await expect(page.locator("h1")).to_have_text("Explain")
        said = page.locator("#explanation")
        await expect(said.locator('[data-figure="explain-when-it-came"]')).to_contain_text("miss")
        await expect(said.locator('[data-figure="explain-now"]')).to_contain_text("exact")
        await expect(said.locator('[data-figure="explain-stored"]')).to_have_text("fresh")
        await expect(said.locator('[data-figure="explain-tags-asked-for"]')).to_have_text("doc:why")
        await page.set_viewport_size({"width": 320, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320
        await dashboard.purge(tags=["doc:why"])
        await page.reload()
        await expect(said.locator('[data-figure="explain-now"]')).to_contain_text("miss")
        await expect(said.locator('[data-figure="explain-reasons"]')).to_contain_text("absent")


async def test_near_questions_are_explained_with_the_rule_that_refused_them(dashboard):
    await dashboard.proxy.ask("How do I clean 3 kettles?", cache={"tags": ["kettles"]})
    asked = await dashboard.proxy.ask("How do I clean 4 kettles?", cache={"tags": ["kettles"]})
    async with dashboard.page("requests") as page:
        await page.get_by_role("link", name="Explain", exact=True).click()
        await page.get_by_label("Request id").fill(asked.headers["x-request-id"])
        await page.keyboard.press("Enter")
        assert (await cells(page, "Stored and near"))[0] == "How do I clean 3 kettles?"
        assert (await cells(page, "Verdict"))[0] == "similarity"
        await page.get_by_label("Request id").fill("nobody's")
        await page.keyboard.press("Enter")
        await expect(page.locator(".said")).to_contain_text("No request nobody's is remembered")


async def test_the_audit_log_shows_who_did_what(dashboard):
    await dashboard.purge(tags=["doc:audited"])
    async with dashboard.page("log") as page:
        assert (await cells(page, "What"))[0] == "purge"
        assert "doc:audited" in (await cells(page, "Asked"))[0]
        assert (await cells(page, "Who"))[0] == "127.0.0.1 with the token"
        assert (await cells(page, "Went well"))[0] == "yes"
        await page.get_by_label("Show").select_option("erase")
        await expect(page.get_by_text("Nothing was done yet")).to_be_visible()


async def test_older_deeds_come_a_page_at_a_time(dashboard):
    for _ in range(51):
        await dashboard.purge(tags=["doc:again"])
    async with dashboard.page("log") as page:
        await expect(rows(page)).to_have_count(50)
        await page.get_by_role("button", name="Show more").click()
        done = (await dashboard.api("/audit?limit=1000"))["deeds"]
        await expect(rows(page)).to_have_count(min(100, len(done)))


async def test_entries_are_searched_and_deleted(dashboard):
    await dashboard.proxy.ask("Which river is to be deleted?", cache={"tags": ["doc:river"]})
    async with dashboard.page("entries") as page:
        await page.get_by_label("In the question").fill("river")
        await page.keyboard.press("Enter")
        await expect(rows(page)).to_have_count(1)
        assert await cells(page, "Tags") == ["doc:river"]
        button = page.get_by_role("button", name="Delete: Which river")
        await button.click()
        assert (await dashboard.api("/cache/entries?q=river"))["entries"]
        await button.click()
        await expect(page.get_by_text("No stored answer matches")).to_be_visible()
        assert (await dashboard.api("/cache/entries?q=river"))["entries"] == []


async def test_more_entries_come_a_page_at_a_time(dashboard):
    for number in range(60):
        await dashboard.proxy.ask(f"Many {number}?", cache={"tags": ["many"], "semantic": False})
    async with dashboard.page("entries") as page:
        await page.get_by_label("Tag").fill("many")
        await page.keyboard.press("Enter")
        await expect(rows(page)).to_have_count(50)
        await page.get_by_role("button", name="Show more").click()
        await expect(rows(page)).to_have_count(60)
        await expect(page.get_by_role("button", name="Show more")).to_be_hidden()


async def test_a_stored_prompt_with_markup_is_shown_as_text(dashboard):
    async with dashboard.page("entries") as page:
        await page.get_by_label("In the question").fill("<script>")
        await page.keyboard.press("Enter")
        await expect(rows(page)).to_have_count(1)
        assert SCRIPT in (await cells(page, "Question"))[0]
        assert await page.locator("main script, main img").count() == 0
        assert await page.title() == "Entries · Rejoinder"


async def test_tags_are_listed_with_the_number_of_their_answers(dashboard):
    listed = (await dashboard.api("/dashboard/tags?q=kb:"))["tags"]
    async with dashboard.page("purge") as page:
        await page.get_by_label("Find").fill("kb:")
        await page.keyboard.press("Enter")
        await expect(rows(page)).to_have_count(1)
        assert await cells(page, "Answers") == [str(listed[0]["entries"])]


async def test_a_purge_with_its_dry_run_works_by_keyboard_alone(dashboard):
    await dashboard.proxy.ask("What does page nine say?", cache={"tags": ["doc:nine"]})
    async with dashboard.page("purge") as page:
        await rows(page).first.wait_for()
        await _tab_to(page, "What")
        await page.keyboard.press("Tab")
        await page.keyboard.type("doc:nine")
        await _tab_to(page, "Dry run")
        await page.keyboard.press("Enter")
        said = page.locator("#purge-said")
        await expect(said).to_contain_text("1 answer and 0 KV pages would go")
        assert (await dashboard.api("/cache/entries?tag=doc:nine"))["entries"]
        await _tab_to(page, "Purge 1")
        await page.keyboard.press("Space")
        await expect(said).to_contain_text("Purged: 1 answer")
        assert (await dashboard.api("/cache/entries?tag=doc:nine"))["entries"] == []


async def test_what_was_not_tried_is_not_purged(dashboard):
    async with dashboard.page("purge") as page:
        await page.get_by_label("Names").fill("doc:0")
        await page.get_by_role("button", name="Dry run").click()
        await expect(page.get_by_role("button", name="Purge 1")).to_be_enabled()
        await page.get_by_label("Names").fill("doc:1")
        await expect(page.get_by_role("button", name="Purge", exact=True)).to_be_disabled()


async def test_the_slider_shows_which_near_misses_another_threshold_would_serve(dashboard):
    misses = (await dashboard.api("/dashboard/near"))["misses"]
    close = next(one for one in misses if one["prompt"] == CLOSE[1])
    assert close["near_prompt"] == CLOSE[0]
    assert close["served_up_to"] == 0.985
    async with dashboard.page("near") as page:
        asked = await cells(page, "Asked")
        assert CLOSE[1] in asked
        assert PAIR[1] not in asked  # that one was served
        slider = page.get_by_label(re.compile("Least similarity"))
        for threshold in (0.5, 0.99):
            await slider.fill(str(threshold))
            served = sum(
                one["served_up_to"] is not None and threshold <= one["served_up_to"]
                for one in misses
            )
            line = page.locator(".verdictline")
            await expect(line).to_contain_text(f"{served} of {len(misses)} near misses")
            await expect(rows(page).locator(".is-semantic")).to_have_count(served)


async def test_audits_show_the_tier_and_its_bound(dashboard):
    figures = (await dashboard.api("/cache/stats"))["policies"]["standard"]
    async with dashboard.page("audits") as page:
        assert await cells(page, "Policy") == ["standard"]
        assert (await cells(page, "Tier"))[0].startswith(figures["state"])
        assert await cells(page, "Bound") == ["unproven"]
        assert await cells(page, "Hits") == [str(figures["hits"])]


async def test_upstreams_show_their_breakers(dashboard):
    async with dashboard.page("upstreams") as page:
        assert await cells(page, "Upstream") == ["main"]
        assert "closed" in (await cells(page, "Breaker"))[0]


async def test_an_empty_view_says_what_to_do(dashboard):
    async with dashboard.page("engine") as page:
        await expect(page.locator("main .empty")).to_contain_text("engine: {model")


async def test_the_config_is_shown_with_its_secrets_masked(dashboard):
    async with dashboard.page("config") as page:
        code = page.locator("main pre")
        await expect(code).to_contain_text('"standard"')
        assert "sk-never-shown" not in await code.inner_text()


async def _tab_to(page, name: str) -> None:
    """Press Tab until what has this name has the focus, and can be seen to have it."""
    for _ in range(60):
        await page.keyboard.press("Tab")
        focused = await page.evaluate(
            "(({labels, textContent}) => labels?.[0]?.textContent ?? textContent)"
            "(document.activeElement)"
        )
        if focused == name:
            outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid"
            return
    raise AssertionError(f"{name} is not reached by Tab")
