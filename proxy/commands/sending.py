"""The requests of `rejoinder warm`, sent to the data port."""

import asyncio
from collections.abc import Callable, Iterator, Mapping

import httpx

from proxy.commands.warming import Summary, Wish

_TIMEOUT_S = 600.0
_HITS = frozenset({"exact", "semantic", "stale", "coalesced"})


class Sender:
    """Sends requests and counts what came back; a failing one does not end the others."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        summary: Summary,
        advance: Callable[[int], None],
    ) -> None:
        """`url` ends in `/v1`."""
        self._url = url.rstrip("/")
        self._headers = headers
        self._summary = summary
        self._advance = advance

    async def send_all(self, requests: Iterator[Wish], *, concurrency: int) -> None:
        """As many workers as requests may be under way, all fed from one iterator."""
        limits = httpx.Limits(max_connections=concurrency)
        async with httpx.AsyncClient(
            headers=self._headers, timeout=_TIMEOUT_S, limits=limits, trust_env=False
        ) as http:

            async def work() -> None:
                for wish in requests:
                    await self._send(http, wish)
                    self._advance(1)

            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work())

    async def _send(self, http: httpx.AsyncClient, wish: Wish) -> None:
        url, summary = self._url + wish.path, self._summary
        if wish.query:
            url = f"{url}?{wish.query}"
        try:
            own = {name.lower(): text for name, text in wish.headers.items()}
            headers = [
                (name.encode("latin-1"), text.encode("latin-1"))
                for name, text in {"content-type": "application/json", **own}.items()
            ]
            answer = await http.post(url, content=bytes(wish.request), headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            summary.fail(wish.line, f"no answer from {url}: {str(error) or type(error).__name__}")
            return
        outcome = answer.headers.get("x-cache", "")
        if not answer.is_success:
            summary.fail(wish.line, f"answered {answer.status_code}: {answer.text[:300]}")
        elif outcome in _HITS:
            summary.hits += 1
        elif outcome == "miss":
            summary.misses += 1
        else:
            summary.bypassed += 1
