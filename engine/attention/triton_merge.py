"""The splits of a decode merged into one result, on a GPU."""

import triton.language as tl

from engine.attention.triton_kernels import jit

_NOWHERE = tl.constexpr(float("-inf"))
_AT_ONCE = tl.constexpr(16)


@jit
def merge_splits(
    parts: tl.tensor,  # float32 [num_seqs, num_heads, num_splits, HEAD_DIM]
    log_sums: tl.tensor,  # float32 [num_seqs, num_heads, num_splits]
    kv_lens: tl.tensor,
    query_starts: tl.tensor,
    result: tl.tensor,  # float32 [num_tokens, num_heads, HEAD_DIM]
    num_splits: tl.tensor,
    WINDOW: tl.constexpr,
    SPLIT_TOKENS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
) -> None:
    """Grid: (num_seqs, num_heads). Reads only the splits that were written, always so many at a
    time and in the same order, however long other sequences are."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    row = tl.load(query_starts + sequence)
    if tl.load(query_starts + sequence + 1) - row != 1:
        return
    kv_len = tl.load(kv_lens + sequence).to(tl.int32)
    first = tl.maximum(kv_len - WINDOW, 0) // SPLIT_TOKENS if WINDOW else 0
    end = tl.cdiv(kv_len, SPLIT_TOKENS)
    dims = tl.arange(0, DIMS)
    line = (sequence * tl.num_programs(1) + head).to(tl.int64) * num_splits
    peak = _NOWHERE
    total = 0.0
    sums = tl.zeros((DIMS,), tl.float32)
    for split in range(first, end, _AT_ONCE):
        splits = split + tl.arange(0, _AT_ONCE)
        written = splits < end
        logs = tl.load(log_sums + line + splits, mask=written, other=_NOWHERE)
        highest = tl.maximum(peak, tl.max(logs, 0))
        weights = tl.exp2(logs - highest)
        faded = tl.exp2(peak - highest)
        at = (line + splits)[:, None] * HEAD_DIM + dims[None, :]
        mask = written[:, None] & (dims < HEAD_DIM)[None, :]
        part = tl.load(parts + at, mask=mask, other=0.0)
        total = total * faded + tl.sum(weights, 0)
        sums = sums * faded + tl.sum(part * weights[:, None], 0)
        peak = highest
    at = (row * tl.num_programs(1) + head) * HEAD_DIM + dims
    tl.store(result + at, sums / tl.where(total == 0.0, 1.0, total), mask=dims < HEAD_DIM)
