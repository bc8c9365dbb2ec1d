"""One browser for all symptoms, where there is one; and the proxies of `tests/proxy`."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest_asyncio
from playwright.async_api import async_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "proxy"))

DEADLINE_S = 180


def chromium() -> str | None:
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser():
    """None without Chromium: metrics and reasons are looked at all the same."""
    path = chromium()
    if path is None:
        yield None
        return
    async with async_playwright() as playwright:
        # Chromium's sandbox does not start as root.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = await playwright.chromium.launch(executable_path=path, args=options)
        yield launched
        await launched.close()


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def deadline():
    async with asyncio.timeout(DEADLINE_S):
        yield
