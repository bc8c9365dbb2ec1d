"""One browser for all symptoms, where there is one; and the proxies of `tests/proxy`."""

import sys
from pathlib import Path

import pytest_asyncio
from chromium import chromium

sys.path.insert(0, str(Path(__file__).parents[1] / "proxy"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser():
    """None without Chromium: metrics and reasons are looked at all the same."""
    async with chromium() as launched:
        yield launched
