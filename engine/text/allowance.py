"""Time and memory for code that came with a model."""

import contextlib
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_AGAIN_S = 0.05
"""Should the code catch the first interruption, others follow."""
_SIZE = Path("/proc/self/statm")


class AllowanceSpent(Exception):  # not a fault of ours
    """It took more than it may."""


@contextlib.contextmanager
def allowance(*, cpu_s: float, memory_bytes: int) -> Iterator[None]:
    """Ends what runs within after so much CPU time of this process, or when it asks for so much
    more memory. Raises AllowanceSpent. Only the main thread can be interrupted: in others nothing
    is bounded. Takes 20 us."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    text = f"it took more than {cpu_s:g} s or {memory_bytes >> 20} MiB"
    try:
        with _address_space(memory_bytes), _cpu_time(cpu_s, text):
            yield
    except MemoryError as error:
        raise AllowanceSpent(text) from error


@contextlib.contextmanager
def _cpu_time(cpu_s: float, text: str) -> Iterator[None]:
    is_armed = True

    def interrupt(_: int, __: FrameType | None) -> None:
        if is_armed:
            raise AllowanceSpent(text)
        return

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, cpu_s, _AGAIN_S)
    try:
        yield
    finally:
        is_armed = False  # a signal that is on its way comes to nothing
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def _address_space(more_bytes: int) -> Iterator[None]:
    """Other threads share it: what they ask for meanwhile may fail as well, but only beside code
    that takes it all. A no-op where the system does not tell its size."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = _size_bytes() + more_bytes
    soft, hard = before
    if not _SIZE.exists() or _is_below(soft, limit) or _is_below(hard, limit):
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _size_bytes() -> int:
    return int(_SIZE.read_text().split()[0]) * resource.getpagesize() if _SIZE.exists() else 0


def _is_below(limit: int, wanted: int) -> bool:
    return limit != resource.RLIM_INFINITY and limit < wanted
