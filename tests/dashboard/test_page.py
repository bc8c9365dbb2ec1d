"""The page as a whole: its token, its policy, its themes, its widths."""

import pytest
from dashboard import TOKEN, VIEWS, give_token
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_wrong_token_shows_nothing_and_is_not_kept(dashboard):
    context = await dashboard.browser.new_context()
    page = await context.new_page()
    await page.goto(f"{dashboard.proxy.admin_url}/#entries")
    await give_token(page, "a guess")
    await expect(page.locator("#gate-error")).to_have_text("That is not the token.")
    assert await page.locator("main tbody tr").count() == 0
    assert await page.evaluate("sessionStorage.length") == 0
    await give_token(page, TOKEN)
    await page.locator("main tbody tr").first.wait_for()
    assert await page.evaluate("Object.values(sessionStorage)") == [TOKEN]
    assert TOKEN not in await page.evaluate("JSON.stringify([localStorage, document.cookie])")
    await page.reload()
    await page.locator("main tbody tr").first.wait_for()  # asked once only
    await context.close()


async def test_the_page_is_open_and_its_data_is_not(dashboard):
    http, url = dashboard.proxy.http, dashboard.proxy.admin_url
    first = await http.get(f"{url}/")
    assert (first.status_code, first.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert (await http.get(f"{url}/dashboard/page/app.js")).status_code == 200
    for path in ("/dashboard/history", "/dashboard/near", "/dashboard/tags", "/cache/recent"):
        assert (await http.get(f"{url}{path}")).status_code == 401
    for path in ("/dashboard/page/..%2f__init__.py", "/dashboard/page/page.py"):
        assert (await http.get(f"{url}{path}")).status_code in (401, 404)


async def test_a_foreign_host_gets_not_even_the_page(dashboard):
    answer = await dashboard.proxy.http.get(
        f"{dashboard.proxy.admin_url}/", headers={"host": "evil.example"}
    )
    assert answer.status_code == 403


async def test_the_policy_lets_nothing_in_from_outside_and_nothing_inline(dashboard):
    answer = await dashboard.proxy.http.get(f"{dashboard.proxy.admin_url}/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    context = await dashboard.browser.new_context()
    page = await context.new_page()
    await page.goto(f"{dashboard.proxy.admin_url}/")
    refused = await page.evaluate(
        "() => { try { document.body.innerHTML = '<p>'; } catch (e) { return e.name; } }"
    )
    assert refused == "TypeError"
    await context.close()


async def test_at_phone_width_nothing_scrolls_sideways(dashboard):
    async with dashboard.page(width=320) as page:
        for view in VIEWS:
            await page.get_by_role("button", name="Menu").click()
            await page.locator(f'nav a[href="#{view}"]').click()
            await expect(page.locator("nav")).to_be_hidden()
            await page.wait_for_load_state("networkidle")
            assert await page.evaluate("document.documentElement.scrollWidth") <= 320, view


async def test_the_theme_follows_the_system_until_one_is_chosen(dashboard):
    background = "getComputedStyle(document.body).backgroundColor"
    async with dashboard.page(color_scheme="light") as page:
        light = await page.evaluate(background)
        await page.get_by_role("button", name="Dark theme").click()
        dark = await page.evaluate(background)
        assert light != dark
        await page.reload()
        assert await page.evaluate(background) == dark
    async with dashboard.page(color_scheme="dark") as page:
        assert await page.evaluate(background) == dark


async def test_the_first_tab_leads_past_the_views(dashboard):
    async with dashboard.page("entries") as page:
        await page.locator("main tbody tr").first.wait_for()
        await page.reload()
        await page.locator("main tbody tr").first.wait_for()
        await page.keyboard.press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("main")).to_be_focused()


async def test_a_refresh_leaves_the_focus_where_it_is(dashboard):
    async with dashboard.page("near") as page:
        slider = page.locator("#near-threshold")
        await slider.fill("0.7")
        await slider.focus()
        async with page.expect_response("**/dashboard/near*"):
            pass  # the next refresh
        await expect(slider).to_be_focused()
        assert await slider.input_value() == "0.7"


async def test_a_proxy_that_is_gone_is_said(dashboard):
    async with dashboard.page("audits") as page:
        await page.locator("main tbody tr").first.wait_for()
        banner = page.locator(".banner")
        await page.route(
            "**/cache/stats",
            lambda route: route.fulfill(
                status=503, json={"error": {"message": "The store failed: it is full."}}
            ),
        )
        await expect(banner).to_have_text("The store failed: it is full.")
        await page.unroute("**/cache/stats")
        await expect(banner).to_be_hidden()
