"""A headless Chromium for the tests that look at pages."""

import contextlib
import os
import shutil
from collections.abc import AsyncIterator

from playwright.async_api import Browser, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser | None]:
    """None where there is none on the path, nor in CHROMIUM."""
    names = (os.environ.get("CHROMIUM"), *NAMES)
    path = next((found for name in names if name and (found := shutil.which(name))), None)
    if path is None:
        yield None
        return
    async with async_playwright() as playwright:
        # Chromium's sandbox does not start as root.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = await playwright.chromium.launch(executable_path=path, args=options)
        yield launched
        await launched.close()
