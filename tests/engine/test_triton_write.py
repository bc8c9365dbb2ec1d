"""Pages written by Triton against those that torch writes, byte by byte."""

import pytest
import torch
from tritonkit import DEVICE

from engine.attention.triton_pages import write_by_triton
from engine.kv.pages import PageLayout
from engine.kv.pool import PagePool
from engine.kv.quant import KeyCentres, hadamard_matrix


@pytest.mark.parametrize(
    ("dtype", "head_dim", "centred"),
    [("int8", size, size > 80) for size in (64, 80, 96, 128, 256)]
    + [("int8", 80, True), ("bf16", 80, False), ("fp32", 96, False)],
)
def test_written_pages_are_those_of_torch_byte_by_byte(
    dtype: str, head_dim: int, centred: bool
) -> None:
    torch.manual_seed(1)
    layout = PageLayout(
        dtype=dtype, page_tokens=32, num_layers=2, num_kv_heads=3, head_dim=head_dim,
        for_cpu=False,
    )  # fmt: skip
    usual, first = torch.randn(2, 2, 3, head_dim) * 5
    centres = KeyCentres(usual=usual, first=first) if centred else None
    by_torch = PagePool(layout, 4, key_centres=centres)
    by_triton = PagePool(layout, 4, key_centres=centres, device=DEVICE, writer=write_by_triton)
    # As a layer has them: views of one projection.
    heads = torch.randn(20, 9, head_dim) * 4
    if dtype == "bf16":  # the interpreter, unlike a GPU, cuts what it should round
        heads = heads.bfloat16().float()
    keys, values = heads[:, 3:6], heads[:, 6:]
    keys[1], keys[2, 0, :3] = 0.0, torch.tensor([float("nan"), float("inf"), -float("inf")])
    values[3], values[4] = 1e-9, 2.0**26
    # Halves: to even.
    values[5, 0] = torch.arange(head_dim) % 127 + 0.5
    values[5, 0, 0] = 127.0
    slots = torch.randperm(128)[:20]
    begins = torch.arange(20) % 7 == 0
    if centred:
        keys[7] = first[1] @ hadamard_matrix(head_dim)  # nothing is left of it
    by_torch.layers[1].write(keys, values, slots, begins)
    by_triton.layers[1].write(
        keys.to(DEVICE), values.to(DEVICE), slots.to(DEVICE), begins.to(DEVICE)
    )
    if dtype == "int8":
        assert torch.equal(by_torch.storage, by_triton.storage.cpu())
    else:  # a NaN has many forms
        for part in ("keys", "values"):
            ours, theirs = (getattr(pool.layers[1], part).part for pool in (by_triton, by_torch))
            assert torch.equal(ours.cpu().nan_to_num(7.0), theirs.nan_to_num(7.0))


def test_a_slot_of_minus_one_is_skipped() -> None:
    layout = PageLayout(
        dtype="int8", page_tokens=32, num_layers=1, num_kv_heads=1, head_dim=16, for_cpu=False
    )
    pool = PagePool(layout, 2, device=DEVICE, writer=write_by_triton)
    vectors = torch.ones(2, 1, 16, device=DEVICE)
    pool.layers[0].write(vectors, vectors, torch.tensor([-1, -1], device=DEVICE))
    assert (pool.storage == 0).all()
