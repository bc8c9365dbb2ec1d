"""The compiled kernels as Python sees them. Tensors in, tensors out; structs mirror the headers.

All work on float32 tensors in CPU memory; what they need of shapes is asserted here, for C++ takes
it as given.
"""

import ctypes
from pathlib import Path
from weakref import WeakKeyDictionary

import msgspec
import torch

from engine.attention.spans import AttentionSpans
from engine.kv.pool import LayerPages
from engine.models.step import LayerStep

_Pointer = ctypes.c_void_p
_Size = ctypes.c_int64


class LinearStruct(ctypes.Structure):
    """LinearWeights in linear.h."""

    _fields_ = (
        ("blocks", _Pointer),
        ("bias", _Pointer),
        ("loud", _Pointer),
        ("num_outputs", _Size),
        ("num_inputs", _Size),
        ("num_loud", _Size),
        ("bits", _Size),
    )


class NormedLinearStruct(ctypes.Structure):
    """NormedLinear in layer.h."""

    _fields_ = (("norm", _Pointer), ("linear", ctypes.POINTER(LinearStruct)))


class LayerStruct(ctypes.Structure):
    """LayerWeights in layer.h."""

    _fields_ = (
        ("qkv", NormedLinearStruct),
        ("output", ctypes.POINTER(LinearStruct)),
        ("gate_up", NormedLinearStruct),
        ("down", ctypes.POINTER(LinearStruct)),
        ("num_heads", _Size),
        ("norm_eps", ctypes.c_float),
    )


class _PagesStruct(ctypes.Structure):
    _fields_ = (
        ("keys", _Pointer),
        ("values", _Pointer),
        ("key_scales", _Pointer),
        ("value_scales", _Pointer),
        ("page_bytes", _Size),
        ("page_tokens", _Size),
        ("num_kv_heads", _Size),
        ("head_dim", _Size),
        ("num_groups", _Size),
        ("window", _Size),
        ("first_offset", _Pointer),
    )


class _SpansStruct(ctypes.Structure):
    _fields_ = (
        ("page_tables", _Pointer),
        ("table_width", _Size),
        ("kv_lens", _Pointer),
        ("query_starts", _Pointer),
        ("num_seqs", _Size),
    )


class _BatchStruct(ctypes.Structure):
    _fields_ = (
        ("cos", _Pointer),
        ("sin", _Pointer),
        ("slots", _Pointer),
        ("num_tokens", _Size),
        ("spans", _SpansStruct),
    )


class _PhaseTimesStruct(ctypes.Structure):
    """PhaseTimes in phases.h."""

    _fields_ = (("attention_ns", _Size), ("linear_ns", _Size))


class PhaseTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Since the library was loaded."""

    attention_s: float
    linear_s: float


class Kernels:
    """One loaded library. Not thread-safe: a model computes one step at a time."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._linear = library.rejoinder_linear
        self._linear.argtypes = (_Pointer, _Pointer, _Size, _Pointer, _Size)
        self._attend = library.rejoinder_attend
        self._attend.argtypes = (_Pointer, _Pointer, _Pointer, _Size, _Size, _Pointer, _Size)
        self._write = library.rejoinder_write
        self._write.argtypes = (_Pointer, _Pointer, _Pointer, _Pointer, _Size)
        self._layer = library.rejoinder_layer
        self._layer.argtypes = (_Pointer, _Pointer, _Pointer, _Pointer, _Pointer, _Size)
        self._phase_times = library.rejoinder_phase_times
        self._phase_times.argtypes = (ctypes.POINTER(_PhaseTimesStruct),)
        self._phase_times.restype = None
        for function in (self._linear, self._attend, self._write, self._layer):
            function.restype = None
        self._pages: WeakKeyDictionary[LayerPages, _PagesStruct] = WeakKeyDictionary()
        # Most layers of a step ask for the same; some models have two kinds of rotation.
        self._batch_of: LayerStep | None = None
        self._batch = _BatchStruct()

    def phase_times(self) -> PhaseTimes:
        """Products with weights, in fused layers too, without the rounding of their inputs; and
        attention, from the first query to the last sum."""
        times = _PhaseTimesStruct()
        self._phase_times(ctypes.byref(times))
        return PhaseTimes(attention_s=times.attention_ns / 1e9, linear_s=times.linear_ns / 1e9)

    def linear(self, weights: LinearStruct, inputs: torch.Tensor) -> torch.Tensor:
        """[num_tokens, num_inputs] → [num_tokens, num_outputs]. A row's result does not depend on
        the other rows."""
        inputs = inputs.contiguous()
        assert inputs.dtype == torch.float32, inputs.dtype
        assert inputs.shape[1] == weights.num_inputs, inputs.shape
        outputs = torch.empty(len(inputs), weights.num_outputs)
        self._linear(
            ctypes.byref(weights), inputs.data_ptr(), len(inputs), outputs.data_ptr(), _threads()
        )
        return outputs

    def attend(
        self, queries: torch.Tensor, pages: LayerPages, spans: AttentionSpans
    ) -> torch.Tensor:
        """See `engine.attention.spans.Attend`; for tiled pages."""
        num_tokens, num_heads, head_dim = queries.shape
        assert queries.dtype == torch.float32, queries.dtype
        assert queries.stride()[1:] == (head_dim, 1), queries.stride()
        result = torch.empty(num_tokens, num_heads, head_dim)
        self._attend(
            ctypes.byref(self._pages_of(pages)), ctypes.byref(_spans_struct(spans)),
            queries.data_ptr(), queries.stride(0), num_heads, result.data_ptr(), _threads(),
        )  # fmt: skip
        return result

    def write(
        self, pages: LayerPages, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """Round and store, as `LayerPages.write` does once the centre is off the keys."""
        keys, values = keys.contiguous(), values.contiguous()
        assert keys.dtype == values.dtype == torch.float32, (keys.dtype, values.dtype)
        self._write(
            ctypes.byref(self._pages_of(pages)), keys.data_ptr(), values.data_ptr(),
            slots.data_ptr(), len(slots),
        )  # fmt: skip

    def layer(
        self,
        weights: LayerStruct,
        hidden: torch.Tensor,
        pages: LayerPages,
        step: LayerStep,
    ) -> None:
        """A whole decoder layer over tiled pages; `hidden` [num_tokens, hidden_size] becomes its
        output."""
        assert hidden.is_contiguous()
        assert hidden.dtype == torch.float32, hidden.dtype
        batch = self._batch_struct(step)
        self._layer(
            ctypes.byref(weights), ctypes.byref(self._pages_of(pages)),
            _data_of(pages.turned_centre), ctypes.byref(batch),
            hidden.data_ptr(), _threads(),
        )  # fmt: skip

    def _batch_struct(self, step: LayerStep) -> _BatchStruct:
        """Points into it; `_batch_of` lets it live."""
        if self._batch_of is not step:
            cos, sin = step.rotation.cos, step.rotation.sin
            self._batch = _BatchStruct(
                cos.data_ptr(), sin.data_ptr(), step.slots.data_ptr(), len(step.slots),
                _spans_struct(step.spans),
            )  # fmt: skip
            self._batch_of = step
        return self._batch

    def _pages_of(self, pages: LayerPages) -> _PagesStruct:
        struct = self._pages.get(pages)
        if struct is None:
            layout = pages.layout
            assert layout.tiled, layout
            assert pages.key_scales is not None
            assert pages.value_scales is not None
            struct = self._pages[pages] = _PagesStruct(
                pages.keys.part.data_ptr(), pages.values.part.data_ptr(),
                pages.key_scales.data_ptr(), pages.value_scales.data_ptr(),
                layout.page_bytes, layout.page_tokens, layout.num_kv_heads, layout.head_dim,
                layout.num_groups, pages.window or 0, _data_of(pages.first_offset),
            )  # fmt: skip
        return struct


def _spans_struct(spans: AttentionSpans) -> _SpansStruct:
    """Points into the tensors of `spans`, which must live as long."""
    for tensor in (spans.page_tables, spans.kv_lens, spans.query_starts):
        assert tensor.is_contiguous()
        assert tensor.dtype == torch.int64
    return _SpansStruct(
        spans.page_tables.data_ptr(), spans.page_tables.shape[1], spans.kv_lens.data_ptr(),
        spans.query_starts.data_ptr(), len(spans.kv_lens),
    )  # fmt: skip


def _data_of(tensor: torch.Tensor | None) -> int | None:
    """Where it lies; it must live as long."""
    if tensor is None:
        return None
    assert tensor.is_contiguous()
    assert tensor.dtype == torch.float32
    return tensor.data_ptr()


def _threads() -> int:
    # The library shares torch's OpenMP runtime, and with it the threads.
    return torch.get_num_threads()
