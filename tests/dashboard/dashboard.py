"""The dashboard in a browser, as tests drive it."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from playwright.async_api import Browser, Locator, Page, expect
from running import Running

expect.set_options(timeout=30_000)  # a view is asked for anew every ten seconds at most

TOKEN = "a-token-for-the-tests-of-the-dashboard"
SCRIPT = "What is <script>document.title='run'</script><img src=x onerror=alert(1)> about?"
PAIR = ("Why is the sky blue?", "why is the sky blue?")
"""The second is answered with the answer to the first."""
CLOSE = ("How do I renew the basic plan?", "How can I renew the basic plan?")
"""These would be as well, if the threshold were a little lower."""
QUESTIONS = (SCRIPT, *PAIR, *CLOSE)
VIEWS = (
    *("overview", "requests", "explain", "entries", "purge", "near"),
    *("audits", "engine", "upstreams", "log", "config"),
)


async def traffic(proxy: Running) -> None:
    """Every question twice; those that are alike with the same tags, so that they may share."""
    for _ in range(2):
        for number, question in enumerate(QUESTIONS):
            answer = await proxy.ask(
                question, cache={"tags": [f"doc:{(number + 1) // 2}", "kb:sky"]}
            )
            assert answer.status_code == 200, answer.text
    await proxy.ask("anything", model="uncached")


@dataclass
class Dashboard:
    proxy: Running
    browser: Browser

    @contextlib.asynccontextmanager
    async def page(
        self, view: str = "overview", *, width: int = 1280, **more
    ) -> AsyncIterator[Page]:
        """A view with the token given."""
        async with opened(self.browser, self.proxy.admin_url, view, width=width, **more) as page:
            await give_token(page, TOKEN)
            await page.locator("dialog").wait_for(state="hidden")
            yield page

    async def api(self, path: str) -> dict:
        headers = {"authorization": f"Bearer {TOKEN}"}
        answer = await self.proxy.http.get(f"{self.proxy.admin_url}{path}", headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def purge(self, **what) -> None:
        headers = {"authorization": f"Bearer {TOKEN}"}
        url = f"{self.proxy.admin_url}/cache/purge"
        answer = await self.proxy.http.post(url, json=what, headers=headers)
        assert answer.status_code == 200, answer.text


@contextlib.asynccontextmanager
async def opened(
    browser: Browser, admin_url: str, view: str, *, width: int = 1280, **more
) -> AsyncIterator[Page]:
    """A view in a tab of its own. A script that fails, or that the page's policy refuses, fails the
    test."""
    size = {"width": width, "height": 800}
    context = await browser.new_context(viewport=size, **more)
    page = await context.new_page()
    page.set_default_timeout(30_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: _note(problems, said))
    await page.goto(f"{admin_url}/#{view}")
    try:
        yield page
    finally:
        await context.close()
    assert not problems, problems


async def give_token(page: Page, token: str) -> None:
    await page.locator("dialog[open]").wait_for()
    await page.fill("#gate-token", token)
    await page.keyboard.press("Enter")


def rows(page: Page) -> Locator:
    return page.locator("main .tablewrap tbody tr")


async def cells(page: Page, column: str) -> list[str]:
    """Of the view's only table."""
    await rows(page).first.wait_for()
    texts = await page.locator(f'main .tablewrap td[data-label="{column}"]').all_inner_texts()
    return [text.strip() for text in texts]


def _note(problems: list[str], said) -> None:
    # Such as the 401 on which the page asks for the token.
    if said.type == "error" and "Failed to load resource" not in said.text:
        problems.append(said.text)
