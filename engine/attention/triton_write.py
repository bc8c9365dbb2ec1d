"""Writes keys and values into pages, on a GPU: rounded bit by bit as `engine.kv.quant` does it."""

import triton.language as tl

from engine.attention.triton_kernels import jit

_MAX_CODE = tl.constexpr(127.0)
# The largest fp16 times that: a larger number is written as this one.
_LIMIT = tl.constexpr(127.0 * 65504.0)
# Added and taken off again it leaves a float32 below 2^22 rounded, half to even.
_ROUNDER = tl.constexpr(1.5 * 2.0**23)


@jit
def write_pages(
    new_keys: tl.tensor,  # float32 [num_tokens, num_kv_heads, HEAD_DIM]; so are the values
    new_values: tl.tensor,
    centres: tl.tensor,  # float32 [num_kv_heads, HEAD_DIM]; unread unless CENTRED
    first_offsets: tl.tensor,  # the same, taken off besides; unread unless MARKED
    begins: tl.tensor,  # int8 [num_tokens]: 1 for the first of a sequence; unread unless MARKED
    slots: tl.tensor,  # int64 [num_tokens]; a negative one writes nothing
    keys: tl.tensor,  # [num_pages, num_kv_heads, PAGE_TOKENS, HEAD_DIM], a page contiguous
    values: tl.tensor,
    key_scales: tl.tensor,  # fp16 [num_pages, num_kv_heads, PAGE_TOKENS]; with QUANTISED
    value_scales: tl.tensor,
    key_stride: tl.tensor,  # of a token, in elements
    value_stride: tl.tensor,
    page_stride: tl.tensor,
    scale_stride: tl.tensor,
    QUANTISED: tl.constexpr,
    CENTRED: tl.constexpr,
    MARKED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
) -> None:
    """Grid: (num_tokens, num_kv_heads)."""
    token, head = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + token)
    if slot < 0:
        return
    dims = tl.arange(0, DIMS)
    inside = dims < HEAD_DIM
    page = slot // PAGE_TOKENS
    place = head * PAGE_TOKENS + slot % PAGE_TOKENS
    at = page * page_stride + place * HEAD_DIM + dims
    scale_at = page * scale_stride + place
    offset = head * HEAD_DIM + dims
    key = tl.load(new_keys + token * key_stride + offset, mask=inside, other=0.0)
    value = tl.load(new_values + token * value_stride + offset, mask=inside, other=0.0)
    if CENTRED:
        key -= tl.load(centres + offset, mask=inside, other=0.0)
    begun = tl.to_tensor(0)
    if MARKED:
        begun = tl.load(begins + token).to(tl.int32)
        key -= tl.load(first_offsets + offset, mask=inside, other=0.0) * begun
    if QUANTISED:
        key, key_scale = _quantise(key)
        if MARKED:
            # By its bit: 0 - 0 would have no sign.
            bits = key_scale.to(tl.int16, bitcast=True) | (begun << 15).to(tl.int16)
            key_scale = bits.to(tl.float16, bitcast=True)
        value, value_scale = _quantise(value)
        tl.store(key_scales + scale_at, key_scale)
        tl.store(value_scales + scale_at, value_scale)
    tl.store(keys + at, key.to(keys.dtype.element_ty), mask=inside)
    tl.store(values + at, value.to(values.dtype.element_ty), mask=inside)


@jit
def _quantise(vector: tl.tensor) -> tl.tensor:
    """As `engine.kv.quant.quantise`. Divisions are exact: the quick ones are off by two bits."""
    finite = tl.where(vector != vector, 0.0, vector)
    finite = tl.minimum(tl.maximum(finite, -_LIMIT), _LIMIT)
    scale = tl.div_rn(tl.max(tl.abs(finite), 0), _MAX_CODE).to(tl.float16)
    divisor = scale.to(tl.float32)
    divisor = tl.where(divisor == 0.0, float("inf"), divisor)
    codes = tl.div_rn(finite, divisor)
    codes = tl.minimum(tl.maximum(codes, -_MAX_CODE), _MAX_CODE)
    return (codes + _ROUNDER) - _ROUNDER, scale
