"""Attention over the pages of a KV cache, on a GPU: one source for prefill and decode, for INT8,
bf16 and fp32 pages.

A program takes a block of queries of one sequence, one KV head, and, in a decode, one split of the
past. All query heads of the KV head are rows of the same tile, so that a page is loaded once for
all of them. Scales fold into scores and probabilities: codes are widened in registers on their way
to the tensor cores, and no dequantised tile is written anywhere. The softmax is online (Milakov and
Gimelshein, 2018), in base 2; splits are merged by the logarithms of their sums (Flash-Decoding).

A split is a fixed number of tokens, counted from position 0, and results are merged in a fixed
order: what a sequence gets does not depend on who else is in the batch.

Written without a GPU at hand: nothing here was timed. What is known is that it computes what the
reference computes, under Triton's interpreter, and what ptxas makes of a decode of INT8 for sm_90:
no register is spilled, pages come in as copies of 16 bytes a thread that run ahead of the
arithmetic, and codes are widened without one conversion instruction. `tests/benchmark/gpu.py`
measures the rest.
"""

import os
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

Kernel = Any
"""Compiled at its first call; `kernel[grid](...)` launches it."""

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Kernels run in Python on the CPU. Triton decides it when a kernel is defined: here, and once."""
LANES = 4
"""INT8 values are read four channels at a time, as one word."""

_NOWHERE = tl.constexpr(float("-inf"))


def jit(function: Callable[..., Any]) -> Kernel:
    """Numbers that change from step to step are not to be compiled into kernels."""
    changing = ("num_seqs", "num_splits", "table_stride")
    return triton.jit(
        function,
        do_not_specialize=[name for name in changing if name in function.__code__.co_varnames],
    )


@jit
def attend_pages(
    queries: tl.tensor,  # float32 [num_tokens, num_kv_heads * GROUP, HEAD_DIM]
    keys: tl.tensor,  # [num_pages, num_kv_heads, PAGE_TOKENS, HEAD_DIM], contiguous in a page
    values: tl.tensor,  # the same; LANES codes a word
    key_scales: tl.tensor,  # fp16 [num_pages, num_kv_heads, PAGE_TOKENS]; unread unless QUANTISED
    value_scales: tl.tensor,
    first_offset: tl.tensor,  # float32 [num_kv_heads, HEAD_DIM]; unread unless MARKED
    page_tables: tl.tensor,  # int64 [num_seqs, table_stride]
    kv_lens: tl.tensor,  # int64 [num_seqs]
    query_starts: tl.tensor,  # int64 [num_seqs + 1]
    result: tl.tensor,  # as `queries`, contiguous; of more splits [num_seqs, num_heads, splits, …]
    log_sums: tl.tensor,  # float32 [num_seqs, num_heads, splits]; unwritten when WHOLE
    query_stride: tl.tensor,
    query_head_stride: tl.tensor,
    page_stride: tl.tensor,  # in elements of `keys`
    scale_stride: tl.tensor,  # in elements of `key_scales`
    table_stride: tl.tensor,
    num_seqs: tl.tensor,
    scale: tl.tensor,  # of scores, times log2(e)
    DECODE: tl.constexpr,  # serves sequences with one query; otherwise those with more
    WHOLE: tl.constexpr,  # there is but one split: what it gives is the result
    SPLIT_TOKENS: tl.constexpr,
    WINDOW: tl.constexpr,  # 0: none
    QUANTISED: tl.constexpr,
    MARKED: tl.constexpr,  # negative key scales mark keys to which `first_offset` is to be added
    LANES: tl.constexpr,  # 1 unless QUANTISED
    DOT: tl.constexpr,  # what the tensor cores multiply
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,  # HEAD_DIM, to the next power of two
    PAGE_TOKENS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads of a KV head
    QUERIES: tl.constexpr,  # of a block
    ROWS: tl.constexpr,  # QUERIES * GROUP, to the next power of two, at least 16
    TOKENS: tl.constexpr,  # of the past, at a time
    SEQS: tl.constexpr,  # at least num_seqs, a power of two
) -> None:
    """Grid: (query blocks, num_kv_heads, splits). The blocks of sequence i begin with number
    query_starts[i] // QUERIES + i: all have room, and no list of them is needed."""
    block, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sequence, skipped = block, 0
    if not DECODE:
        sequence, skipped = _place(block, query_starts, num_seqs, QUERIES, SEQS)
    first_row = tl.load(query_starts + sequence).to(tl.int32)
    num_queries = tl.load(query_starts + sequence + 1).to(tl.int32) - first_row
    if (num_queries == 1) != DECODE:
        return
    if skipped >= num_queries:
        return
    kv_len = tl.load(kv_lens + sequence).to(tl.int32)

    # This block's queries stand at first … end; together they see the tokens low … high.
    first = kv_len - num_queries + skipped
    end = tl.minimum(first + QUERIES, kv_len)
    low = tl.maximum(first - WINDOW + 1, 0) if WINDOW else 0
    high = end
    if DECODE:
        low = tl.maximum(low, split * SPLIT_TOKENS)
        high = tl.minimum(high, (split + 1) * SPLIT_TOKENS)
        if (low >= high) and not WHOLE:
            return
    bounds = _stretches(first, end, low, high, WINDOW, TOKENS)

    rows = tl.arange(0, ROWS)
    row_query = skipped + rows // GROUP
    row_head = head * GROUP + rows % GROUP
    real = (rows < QUERIES * GROUP) & (row_query < num_queries)
    positions = first + rows // GROUP
    dims = tl.arange(0, DIMS)
    at = (first_row + row_query) * query_stride + row_head * query_head_stride
    mask = real[:, None] & (dims < HEAD_DIM)[None, :]
    asked = tl.load(queries + at[:, None] + dims[None, :], mask=mask, other=0.0)
    asked *= scale
    lacking = _lacking(asked, first_offset + head * HEAD_DIM, MARKED, HEAD_DIM, DIMS)
    asked = asked.to(DOT)

    table = page_tables + sequence.to(tl.int64) * table_stride
    peak = tl.full((ROWS,), _NOWHERE, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    zeros = tl.zeros((ROWS, DIMS // LANES), tl.float32)
    sums = (zeros, zeros, zeros, zeros) if LANES == 4 else (zeros,)
    for stretch in tl.static_range(0 if WINDOW else 1, 3):
        for token in range(bounds[stretch], bounds[stretch + 1], TOKENS):
            peak, total, sums = _absorb(
                peak, total, sums, asked, lacking, positions, token, low, high, head, table,
                keys, values, key_scales, value_scales, page_stride, scale_stride,
                stretch != 1, WINDOW, QUANTISED, MARKED, LANES, DOT, HEAD_DIM, DIMS, PAGE_TOKENS,
                TOKENS,
            )  # fmt: skip

    # A row that saw nothing, of an empty sequence, gives zeros.
    divisors = tl.where(total == 0.0, 1.0, total)
    num_heads = tl.num_programs(1) * GROUP
    line = (first_row + row_query).to(tl.int64) * num_heads + row_head
    if DECODE and not WHOLE:
        line = (sequence * num_heads + row_head).to(tl.int64) * tl.num_programs(2) + split
        tl.store(log_sums + line, peak + tl.log2(divisors), mask=real)
    words = tl.arange(0, DIMS // LANES)
    at = line[:, None] * HEAD_DIM + words[None, :] * LANES
    mask = real[:, None] & (words < HEAD_DIM // LANES)[None, :]
    for lane in tl.static_range(LANES):
        tl.store(result + at + lane, sums[lane] / divisors[:, None], mask=mask)


@jit
def _lacking(
    asked: tl.tensor,  # float32 [ROWS, DIMS]
    offset: tl.tensor,  # float32 [HEAD_DIM]
    MARKED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
) -> tl.tensor:
    """float32 [ROWS]: what the scores of marked keys lack."""
    dims = tl.arange(0, DIMS)
    inside = dims < HEAD_DIM if MARKED else dims < 0
    return tl.sum(asked * tl.load(offset + dims, mask=inside, other=0.0)[None, :], 1)


@jit
def _place(
    block: tl.tensor,
    query_starts: tl.tensor,
    num_seqs: tl.tensor,
    QUERIES: tl.constexpr,
    SEQS: tl.constexpr,
) -> tl.tensor:
    """The sequence of a block, and how many of its queries stand in earlier blocks."""
    numbers = tl.arange(0, SEQS)
    starts = tl.load(query_starts + numbers, mask=numbers < num_seqs, other=0).to(tl.int32)
    firsts = starts // QUERIES + numbers
    begun = (firsts <= block) & (numbers < num_seqs)
    sequence = tl.sum(begun.to(tl.int32), 0) - 1
    return sequence, (block - tl.max(tl.where(begun, firsts, 0), 0)) * QUERIES


@jit
def _stretches(
    first: tl.tensor,
    end: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    WINDOW: tl.constexpr,
    TOKENS: tl.constexpr,
) -> tl.tensor:
    """low … high in three parts: what all rows see, which needs no masks, and what lies on either
    side of it."""
    bound = low // TOKENS * TOKENS
    seen_low = bound
    if WINDOW:
        seen_low = tl.maximum(bound, tl.cdiv(end - WINDOW, TOKENS) * TOKENS)
        seen_low = tl.minimum(seen_low, tl.cdiv(high, TOKENS) * TOKENS)
    seen_high = tl.maximum(tl.minimum(high, first + 1) // TOKENS * TOKENS, seen_low)
    return bound, seen_low, seen_high, high


@jit
def _absorb(
    peak: tl.tensor,  # float32 [ROWS]: the highest score so far
    total: tl.tensor,  # float32 [ROWS]: the sum of weights
    sums: tl.tensor,  # LANES of float32 [ROWS, DIMS / LANES]: weighted values
    asked: tl.tensor,  # DOT [ROWS, DIMS]
    lacking: tl.tensor,  # float32 [ROWS]: of the scores of marked keys
    positions: tl.tensor,  # int32 [ROWS]
    token: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    head: tl.tensor,
    table: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    key_scales: tl.tensor,
    value_scales: tl.tensor,
    page_stride: tl.tensor,
    scale_stride: tl.tensor,
    EDGE: tl.constexpr,  # not all of these tokens are seen by all rows
    WINDOW: tl.constexpr,
    QUANTISED: tl.constexpr,
    MARKED: tl.constexpr,
    LANES: tl.constexpr,
    DOT: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    TOKENS: tl.constexpr,
) -> tl.tensor:
    """TOKENS keys and values, from `token` on, enter the softmax: peak, total and sums anew."""
    tokens = token + tl.arange(0, TOKENS)
    inside = (tokens >= low) & (tokens < high)
    page = _read(table + tokens // PAGE_TOKENS, inside, EDGE)
    place = head * PAGE_TOKENS + tokens % PAGE_TOKENS
    scale_at = page * scale_stride + place

    key = _read_vectors(
        keys, page * page_stride + place * HEAD_DIM, inside, EDGE, HEAD_DIM, DIMS
    )  # fmt: skip
    key = _half(key) if QUANTISED else key.to(DOT)
    scores = tl.dot(asked, tl.trans(key), input_precision="ieee")
    if QUANTISED:
        key_factors = _read(key_scales + scale_at, inside, EDGE).to(tl.float32)
        scores *= tl.abs(key_factors)[None, :]
        if MARKED:
            marked = key_factors.to(tl.int32, bitcast=True) < 0  # -0 too
            scores += tl.where(marked[None, :], lacking[:, None], 0.0)
    if EDGE:
        seen = inside[None, :] & (tokens[None, :] <= positions[:, None])
        if WINDOW:
            seen = seen & (tokens[None, :] > positions[:, None] - WINDOW)
        scores = tl.where(seen, scores, _NOWHERE)

    highest = tl.maximum(peak, tl.max(scores, 1))
    # A row that has seen nothing yet has no peak: -inf less -inf is no number.
    shift = tl.where(highest == _NOWHERE, 0.0, highest) if EDGE else highest
    faded = tl.exp2(peak - shift)
    weights = tl.exp2(scores - shift[:, None])
    total = total * faded + tl.sum(weights, 1)

    value = _read_vectors(
        values, page * (page_stride // LANES) + place * (HEAD_DIM // LANES),
        inside, EDGE, HEAD_DIM // LANES, DIMS // LANES,
    )  # fmt: skip
    if QUANTISED:
        # As fp16, small scales times small weights would lose their last bits, and large ones
        # overflow: scales go in as shares of the largest here.
        value_factors = _read(value_scales + scale_at, inside, EDGE).to(tl.float32)
        largest = tl.max(value_factors, 0)
        shares = value_factors / tl.where(largest == 0.0, 1.0, largest)
        weights = (weights * shares[None, :]).to(DOT)
        sums = (
            sums[0] * faded[:, None] + tl.dot(weights, _lane(value, 0)) * largest,
            sums[1] * faded[:, None] + tl.dot(weights, _lane(value, 1)) * largest,
            sums[2] * faded[:, None] + tl.dot(weights, _lane(value, 2)) * largest,
            sums[3] * faded[:, None] + tl.dot(weights, _lane(value, 3)) * largest,
        )
    else:
        added = tl.dot(weights.to(DOT), value.to(DOT), input_precision="ieee")
        sums = (sums[0] * faded[:, None] + added,)
    return highest, total, sums


@jit
def _half(codes: tl.tensor) -> tl.tensor:
    """int8 → the same numbers in fp16, exactly. 0x6400 is 1024, whose last bits count ones; the
    code's sign bit turned over adds 128. Conversion instructions have a fraction of the rate."""
    bits = (codes.to(tl.int16) & 0xFF) ^ 0x6480
    return bits.to(tl.float16, bitcast=True) - 1152.0


@jit
def _lane(words: tl.tensor, lane: tl.constexpr) -> tl.tensor:
    """One of four int8 in each int32, as fp16. Read as bytes, values would leave shared memory one
    by one: tensor cores want them by token, memory holds them by channel."""
    bits = ((words >> (8 * lane)) & 0xFF) ^ 0x6480
    return bits.to(tl.int16).to(tl.float16, bitcast=True) - 1152.0


@jit
def _read(pointers: tl.tensor, inside: tl.tensor, EDGE: tl.constexpr) -> tl.tensor:
    """What is not inside is 0: it may hold anything."""
    return tl.load(pointers, mask=inside, other=0) if EDGE else tl.load(pointers)


@jit
def _read_vectors(
    part: tl.tensor,
    at: tl.tensor,  # int64 [TOKENS]
    inside: tl.tensor,
    EDGE: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
) -> tl.tensor:
    """[TOKENS, PADDED]; without a mask where none is needed."""
    elements = tl.arange(0, PADDED)
    pointers = part + at[:, None] + elements[None, :]
    if SIZE != PADDED:
        within = (elements < SIZE)[None, :]
        vectors = tl.load(pointers, mask=inside[:, None] & within if EDGE else within, other=0)
    elif EDGE:
        vectors = tl.load(pointers, mask=inside[:, None], other=0)
    else:
        vectors = tl.load(pointers)
    return vectors
