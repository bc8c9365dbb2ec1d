"""A GPU that is not there: tensors that say `cuda:0`, whose numbers lie on the CPU.

Every operation passes through `GPU`, which refuses one that mixes devices, as torch would, and
computes the others on the CPU, so that tokens can be compared. It is stricter than torch, which
lets an index lie on the CPU: that would be a wait in every step, and cannot be captured in a graph.
Kernels are doubles, called with what the real ones are launched with; a graph is a list of what
was done while it was captured.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import devicekernels
import pytest
import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
)

from engine.attention import triton_pages

CUDA = torch.device("cuda", 0)
KERNELS = {
    "attend_pages": devicekernels.attend,
    "merge_splits": devicekernels.merge,
    "write_pages": devicekernels.write,
}
_ACROSS = (torch.Tensor.copy_, torch.ops.aten._to_copy.default)
_PINNING = (torch.ops.aten.pin_memory.default, torch.ops.aten._pin_memory.default)
_ASKING = (
    torch.Tensor.__getitem__, torch.Tensor.__setitem__, torch.Tensor.contiguous, torch.Tensor.copy_,
)  # fmt: skip
"""These ask for a driver before they come down to operations."""


class WrongDevice(AssertionError):
    """An error on a GPU, or a wait in every step."""


class OnDevice(torch.Tensor):
    """Its numbers are `held`; views share them."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "OnDevice":
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(),
            dtype=held.dtype, device=CUDA,
        )  # fmt: skip
        made.held = held
        return made

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func is torch.Tensor.tolist:
            return args[0].cpu().tolist()
        if func in (torch.Tensor.numpy, torch.Tensor.data_ptr):
            raise WrongDevice(f"{func.__name__} of what lies on the GPU")
        with torch._C.DisableTorchFunctionSubclass():
            if func not in _ASKING:
                return func(*args, **(kwargs or {}))
            gpu = _get_current_dispatch_mode()
            assert isinstance(gpu, GPU)
            with _disable_current_modes():
                return gpu.compute(func, args, dict(kwargs or {}))

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        raise WrongDevice(f"{func} in a thread that has no GPU")


class Graph:
    """What was done while it was captured, to be done again where the numbers lie."""

    def __init__(self) -> None:
        self.again: list[Callable[[], object]] = []
        self.num_replays = 0

    def replay(self) -> None:
        self.num_replays += 1
        with _disable_current_modes(), torch.inference_mode():
            for do in self.again:
                do()


class GPU(TorchDispatchMode):
    """Of the thread in which it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.graphs: list[Graph] = []
        self.launches: list[str] = []
        self._capturing: Graph | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        return self.compute(func, args, dict(kwargs or {}))

    def compute(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """An operation, on the numbers themselves."""
        target = self._target(func, args, kwargs)
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        kwargs.pop("pin_memory", None)
        if func in _PINNING:
            return args[0].clone()
        owners: dict[int, OnDevice] = {}

        def held(tensor: torch.Tensor) -> torch.Tensor:
            if not isinstance(tensor, OnDevice):
                return tensor
            owners[id(tensor.held)] = tensor
            return tensor.held

        def owner(tensor: torch.Tensor) -> OnDevice:
            return owners[id(tensor)] if id(tensor) in owners else OnDevice(tensor)

        args, kwargs = _each(held, args), _each(held, kwargs)
        result = func(*args, **kwargs)
        if target.type == "cpu":
            return result
        if self._capturing is not None:
            self._capturing.again.append(lambda: _refresh(result, func(*args, **kwargs)))
        return _each(owner, result)

    @contextlib.contextmanager
    def graph(self, graph: Graph) -> Iterator[None]:
        """As `torch.cuda.graph`."""
        self.graphs.append(graph)
        self._capturing = graph
        try:
            yield
        finally:
            self._capturing = None

    def launch(self, name: str, run: Callable[..., object], args: tuple, settings: dict) -> None:
        """A kernel on the GPU. Each tensor that it is given has to lie there."""
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if not all(isinstance(tensor, OnDevice) for tensor in tensors):
            raise WrongDevice(f"{name} is given {[tensor.device.type for tensor in tensors]}")
        self.launches.append(name)
        held = [arg.held if isinstance(arg, OnDevice) else arg for arg in args]
        with _disable_current_modes():
            run(*held, **settings)
        if self._capturing is not None:
            self._capturing.again.append(lambda: run(*held, **settings))

    def _target(self, func: Any, args: tuple, kwargs: dict) -> torch.device:
        """Where the result lies."""
        tensors = _tensors((args, kwargs))
        there = [tensor for tensor in tensors if isinstance(tensor, OnDevice)]
        # A number without dimensions may come from the CPU, as with torch.
        here = [tensor for tensor in tensors if tensor.device.type == "cpu" and tensor.dim()]
        if there and here and func not in _ACROSS:
            raise WrongDevice(f"{func} of {[tensor.device.type for tensor in tensors]}")
        target = kwargs.get("device") or (CUDA if there else torch.device("cpu"))
        if func is torch.Tensor.copy_:
            target = args[0].device
        leaves = (
            there and target.type == "cpu"
        ) or func is torch.ops.aten._local_scalar_dense.default
        if self._capturing is not None and (leaves or (here and target.type == "cuda")):
            raise WrongDevice(f"{func} goes between devices while a graph is captured")
        return target


def _each(change: Callable[[torch.Tensor], object], value: Any) -> Any:
    """`value` with all its tensors changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([_each(change, item) for item in value])
    if isinstance(value, dict):
        return {key: _each(change, item) for key, item in value.items()}
    return value


def _tensors(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    _each(found.append, value)
    return found


def _refresh(before: Any, again: Any) -> None:
    """Results that have memory of their own go where those of the capture lie."""
    for old, new in zip(_tensors(before), _tensors(again), strict=True):
        if old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
            old.copy_(new)


class _Launcher:
    """`kernel[grid](...)`."""

    def __init__(self, gpu: GPU, name: str, kernel: Callable[..., object]) -> None:
        self._gpu, self._name, self._kernel = gpu, name, kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, **settings: Any) -> None:
            self._gpu.launch(self._name, partial(self._kernel, grid), args, settings)

        return launch


class _Stream:
    def wait_stream(self, stream: "_Stream") -> None:
        pass


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[GPU]:
    """torch finds it, and this thread computes there what is said to lie there."""
    made = GPU()
    for name, kernel in KERNELS.items():
        monkeypatch.setattr(triton_pages, name, _Launcher(made, name, kernel))
    doubles = {
        "_lazy_init": lambda: None, "is_available": lambda: True, "current_device": lambda: 0,
        "Stream": _Stream, "current_stream": _Stream, "CUDAGraph": Graph, "graph": made.graph,
        "stream": lambda stream: contextlib.nullcontext(),
    }  # fmt: skip
    for name, double in doubles.items():
        monkeypatch.setattr(torch.cuda, name, double)
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with made:
            yield made
    finally:
        torch._C._set_only_lift_cpu_tensors(False)
