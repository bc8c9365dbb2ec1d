"""What an operator looks at: the metrics, `explain`, and the dashboard in a browser."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest
from playwright.async_api import Browser, Page
from prometheus_client.parser import text_string_to_metric_families
from table import Element, Metric, Row

DEADLINE_S = 60
# A column of a table, a tile, or a figure in a list: whichever is called so for good.
_FIND = """figure => [...document.querySelectorAll(`main [data-figure="${figure}"]`)]
  .map(one => one.innerText.trim())"""
_UNITS = {"s": 1000.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_NUMBER = re.compile(r"([\d,.]+)(?: (s|KiB|MiB|GiB)\b)?")


@dataclass
class Fault:
    """Filled by the test that injects it: what `explain` is asked."""

    asked: dict = field(default_factory=dict)


@dataclass
class Instruments:
    admin_url: str
    http: httpx.AsyncClient
    browser: Browser | None
    page: Page | None = None

    async def metric(self, metric: Metric) -> float | None:
        """None where there is no such sample."""
        answer = await self.http.get(f"{self.admin_url}/metrics")
        families = list(text_string_to_metric_families(answer.text))
        values = [
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == metric.name
            and all(sample.labels.get(k) == v for k, v in metric.labels)
        ]
        return sum(values) if values else None

    async def words(self, asked: dict) -> set[str]:
        """Every word that `explain` gives as an outcome, a state, a reason or a place."""
        answer = await self.http.post(f"{self.admin_url}/cache/explain", json=asked)
        assert answer.status_code == 200, answer.text
        return set(_words_of(answer.json()))

    async def texts(self, element: Element) -> list[str]:
        """Opened anew, so it is of now."""
        assert self.page is not None
        await self.page.goto("about:blank")
        await self.page.goto(f"{self.admin_url}/#{element.view}")
        # The view has what it asks the proxy for.
        await self.page.locator(f'main[data-asked="{element.view}"]').wait_for()
        return await self.page.evaluate(_FIND, element.figure)


@contextlib.asynccontextmanager
async def showing(row: Row, place, browser: Browser | None) -> AsyncIterator[Fault]:
    """Inject the fault in the block. Afterwards all three instruments show what the row says.
    `place`: a running proxy, with `admin_url` and `http`."""
    look = Instruments(place.admin_url, place.http, browser)
    async with contextlib.AsyncExitStack() as stack:
        if browser is not None:
            context = await browser.new_context()
            stack.push_async_callback(context.close)
            look.page = await context.new_page()
        counted = await look.metric(row.metric)
        seen = await look.texts(row.element) if browser else []
        fault = Fault()
        yield fault
        await _until(lambda: _moved(look, row.metric, counted), f"{row.metric} from {counted}")
        words = await look.words(fault.asked)
        assert set(row.reasons) <= words, (row.reasons, words)
        if browser is None:
            pytest.skip("metric and reason are shown; the dashboard needs Chromium")
        await _until(lambda: _shown(look, row.element, seen), f"{row.element} from {seen}")


async def _moved(look: Instruments, metric: Metric, before: float | None) -> bool:
    return (await look.metric(metric) or 0.0) > (before or 0.0)


async def _shown(look: Instruments, element: Element, before: list[str]) -> bool:
    now = await look.texts(element)
    if not now:
        return False  # nor does an empty view say anything
    match element.verb:
        case "says":
            return element.is_said(now) and not element.is_said(before)
        case "rises":
            return _most(now) > _most(before)


def _most(texts: list[str]) -> float:
    found = [_NUMBER.search(one) for one in texts]
    numbers = [float(m[1].replace(",", "")) * _UNITS.get(m[2], 1.0) for m in found if m]
    return max(numbers, default=0.0)


async def _until(holds, what: str) -> None:
    """The counters and views follow within a second or two; a fault that shows late still shows."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DEADLINE_S):
            while not await holds():
                await asyncio.sleep(0.3)
            return
    raise AssertionError(f"never shown: {what}")


def _words_of(told: object, name: str = "") -> list[str]:
    if isinstance(told, dict):
        return [word for key, one in told.items() for word in _words_of(one, key)]
    if isinstance(told, list):
        return [word for one in told for word in _words_of(one, name)]
    named = ("outcome", "state", "word", "reason", "path", "reasons", "status", "not_kept")
    return [str(told)] if name in named else []
