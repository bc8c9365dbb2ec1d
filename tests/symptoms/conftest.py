"""One browser for all symptoms, where there is one; and the proxies of `tests/proxy`."""

import asyncio
import sys
from pathlib import Path

import pytest_asyncio
from chromium import chromium

sys.path.insert(0, str(Path(__file__).parents[1] / "proxy"))

DEADLINE_S = 180


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser():
    """None without Chromium: metrics and reasons are looked at all the same."""
    async with chromium() as launched:
        yield launched


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def deadline():
    async with asyncio.timeout(DEADLINE_S):
        yield
