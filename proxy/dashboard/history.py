"""What was counted in the last day, minute by minute: in this process, or in a file that all
workers read and one of them writes. It ends with the proxy; Prometheus is for longer."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import msgspec

from proxy.dashboard.sample import Sample

EVERY_S = 60
MAX_SAMPLES = 24 * 60 + 1


class History(Protocol):
    """Samples, oldest first."""

    def add(self, sample: Sample) -> None:
        """The newest one. The oldest is forgotten when there are too many."""
        ...

    def all(self) -> tuple[Sample, ...]:
        """Those that are remembered."""
        ...


class OwnHistory:
    """Of one process."""

    def __init__(self, *, max_samples: int = MAX_SAMPLES) -> None:
        self._samples: deque[Sample] = deque(maxlen=max_samples)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def all(self) -> tuple[Sample, ...]:
        return tuple(self._samples)


class SharedHistory:
    """A file of JSON lines. One process adds, all read; a worker that is started again goes on
    where it was."""

    def __init__(self, path: Path, *, max_samples: int = MAX_SAMPLES) -> None:
        self._path = path
        self._max_samples = max_samples
        self._decoder = msgspec.json.Decoder(Sample)
        self._num_lines: int | None = None

    def add(self, sample: Sample) -> None:
        if self._num_lines is None:
            self._num_lines = len(self.all())
        if self._num_lines >= 2 * self._max_samples:
            self._shorten()
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(sample) + b"\n")
        self._num_lines += 1

    def all(self) -> tuple[Sample, ...]:
        try:
            # What a writer has not ended with a newline yet is left for the next time.
            lines = self._path.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return ()
        return tuple(map(self._decoder.decode, lines[-self._max_samples :]))

    def _shorten(self) -> None:
        kept = self.all()
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in kept))
        fresh.replace(self._path)
        self._num_lines = len(kept)


def history_in(folder: str | None) -> History:
    """`folder`: of the workers' counters; None where there is one process."""
    return OwnHistory() if folder is None else SharedHistory(Path(folder) / "history.jsonl")


async def keep(
    history: History, take: Callable[[float], Awaitable[Sample]], *, clock: Callable[[], float]
) -> None:
    """Add a sample now and at each full minute; `take` makes one of the given time. Runs until
    cancelled."""
    at = clock()
    while True:
        history.add(await take(at))
        now = clock()
        # The time that it is of, not that of waking up: so minutes stay minutes.
        at = (now // EVERY_S + 1) * EVERY_S
        await asyncio.sleep(at - now)
