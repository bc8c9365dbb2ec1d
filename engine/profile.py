"""A trace of some steps of a running engine, and where their time went.

Inside a fused layer, which is one call of a kernel, no profiler can look: the kernels count by
themselves how long they multiply with weights and how long they attend (`engine/kernels/phases.h`).
What torch computes, and what a GPU runs, is told by the names in the trace.
"""

import gzip
import re
import tempfile
import time
from collections import deque
from pathlib import Path

import msgspec
from torch.profiler import ProfilerActivity, profile

from engine.advancing import Event
from engine.engine import Engine
from engine.kernels.bindings import Kernels
from engine.phases import ATTENTION, SAMPLING, SCHEDULING
from engine.process.protocol import Profile, Profiled

_LINEAR = "aten::linear"
_GPU_KERNELS = {
    "attention": re.compile("attend_pages|merge_splits"),
    "linear": re.compile("gemm|gemv|cutlass|nvjet|cublas|splitK", re.IGNORECASE),
}


class Profiler:
    """Of one engine; profiles that are asked for wait for those before them."""

    def __init__(self, engine: Engine, kernels: Kernels | None, *, on_gpu: bool) -> None:
        self._engine = engine
        self._kernels = kernels
        self._on_gpu = on_gpu
        self._asked: deque[Profile] = deque()
        self._running: _Running | None = None

    def ask(self, wanted: Profile) -> None:
        """It begins with the next step, or when those before it are done."""
        self._asked.append(wanted)

    @property
    def patience_s(self) -> float | None:
        """So long the next step may be waited for; None: forever."""
        if self._running is None:
            return 0.0 if self._asked else None
        return max(0.0, self._running.deadline - time.monotonic())

    def step(self) -> tuple[list[Event], list[Profiled]]:
        """`Engine.step`, watched where that is asked for; profiles that ended with it."""
        if self._running is None and self._asked:
            self._running = self._begin(self._asked.popleft())
        if self._running is None:
            return self._engine.step(), []
        started, before = time.perf_counter(), self._engine.num_steps
        events = self._engine.step()
        if self._engine.num_steps > before:
            self._running.num_steps += 1
            self._running.steps_s += time.perf_counter() - started
        return events, self._ended(self._running)

    def _begin(self, wanted: Profile) -> "_Running":
        activities = [ProfilerActivity.CPU]
        if self._on_gpu:
            activities.append(ProfilerActivity.CUDA)
        watching = profile(activities=activities)
        watching.start()
        return _Running(
            wanted=wanted,
            watching=watching,
            deadline=time.monotonic() + wanted.longest_s,
            before=self._kernel_times(),
        )

    def _ended(self, running: "_Running") -> list[Profiled]:
        enough = running.num_steps >= running.wanted.num_steps
        if not enough and time.monotonic() < running.deadline:
            return []
        self._running = None
        running.watching.stop()
        return [
            Profiled(
                num_steps=running.num_steps,
                steps_s=running.steps_s,
                phases=self._phases(running),
                trace=_trace(running.watching),
            )
        ]

    def _phases(self, running: "_Running") -> dict[str, float]:
        """Seconds; together, those of the steps."""
        found = self._kernel_times()
        for name in found:
            found[name] -= running.before[name]
        for name, seconds in _by_name(running.watching, on_gpu=self._on_gpu).items():
            found[name] = found.get(name, 0.0) + seconds
        return found | {"other": max(0.0, running.steps_s - sum(found.values()))}

    def _kernel_times(self) -> dict[str, float]:
        if self._kernels is None:
            return {"attention": 0.0, "linear": 0.0}
        times = self._kernels.phase_times()
        return {"attention": times.attention_s, "linear": times.linear_s}


class _Running(msgspec.Struct, kw_only=True):
    """Not frozen: it counts."""

    wanted: Profile
    watching: profile
    deadline: float
    before: dict[str, float]
    num_steps: int = 0
    steps_s: float = 0.0


def _by_name(watching: profile, *, on_gpu: bool) -> dict[str, float]:
    """Seconds of what the trace names; of linear layers and attention on a GPU, its own."""
    found = dict.fromkeys(("attention", "linear", "sampling", "scheduling"), 0.0)
    on_cpu = {ATTENTION: "attention", _LINEAR: "linear"}
    names = {SAMPLING: "sampling", SCHEDULING: "scheduling"} | ({} if on_gpu else on_cpu)
    for entry in watching.key_averages():
        if entry.key in names:
            found[names[entry.key]] += entry.cpu_time_total / 1e6
        for phase, pattern in _GPU_KERNELS.items():
            if on_gpu and pattern.search(entry.key):
                found[phase] += entry.self_device_time_total / 1e6
    return found


def _trace(watching: profile) -> bytes:
    """Chrome's JSON, compressed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        watching.export_chrome_trace(str(path))
        return gzip.compress(path.read_bytes())
