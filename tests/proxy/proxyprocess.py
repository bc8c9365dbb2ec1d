"""`rejoinder serve` as a process of its own, and what it says."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

DEADLINE_S = 90


@dataclass
class Process:
    """URLs without `/v1`; `path` is its config file."""

    path: Path
    process: asyncio.subprocess.Process
    http: httpx.AsyncClient
    url: str = ""
    admin_url: str = ""
    said: list[str] = field(default_factory=list)
    _heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, text: str = "What is a cache?", **more) -> httpx.Response:
        """One chat request, answered whole; `more` goes into the body."""
        body = {"model": "test-1", "messages": [{"role": "user", "content": text}], **more}
        return await self.http.post(f"{self.url}/v1/chat/completions", json=body)

    async def hears(self, pattern: str) -> re.Match[str]:
        """Wait until a line matches, from the beginning on."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for line in self.said:
                    if match := re.search(pattern, line):
                        return match
                if self._heard.is_set() and self.process.stdout.at_eof():
                    raise AssertionError(f"never said {pattern!r}:\n" + "".join(self.said))
                self._heard.clear()
                await self._heard.wait()

    async def ends(self) -> int:
        """Wait for its end; the exit code."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()

    async def listen(self) -> None:
        while line := await self.process.stdout.readline():
            self.said.append(line.decode())
            self._heard.set()
        self._heard.set()


@contextlib.asynccontextmanager
async def serving_process(config: str, folder: Path, **environ: str) -> AsyncIterator[Process]:
    """Run a config (YAML) until the end of the block, where SIGINT ends it, if it still runs."""
    path = folder / "serve.yaml"
    path.write_text(config)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy.cli", "serve", str(path),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environ},
    )  # fmt: skip
    async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
        running = Process(path=path, process=process, http=http)
        listening = asyncio.create_task(running.listen())
        try:
            match = await running.hears(r"answers on (\S+)/v1 \(admin: (\S+)\)")
            running.url, running.admin_url = match.groups()
            yield running
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
                try:
                    await running.ends()
                except TimeoutError:
                    process.kill()
                    raise
            await listening
