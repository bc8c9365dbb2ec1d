"""What stays of a prompt, in its pages."""

import pytest
import torch

from engine.attention.reference import in_order, keys_in_order
from engine.kv.dropping import _compact
from engine.kv.pages import PageLayout
from engine.kv.pool import PagePool
from engine.kv.quant import KeyCentres


@pytest.mark.parametrize("for_cpu", [True, False])
@pytest.mark.parametrize("dtype", ["int8", "int8-hq", "bf16"])
def test_tokens_that_stay_are_moved_as_they_are_and_a_first_key_stays_one(
    dtype: str, for_cpu: bool
) -> None:
    torch.manual_seed(4)
    layout = PageLayout(
        dtype=dtype, page_tokens=16, num_layers=1, num_kv_heads=2, head_dim=64, for_cpu=for_cpu
    )
    usual, first = torch.randn(2, 1, 2, 64)
    pool = PagePool(layout, 6, key_centres=KeyCentres(usual=usual, first=first))
    layer, table = pool.layers[0], torch.tensor([4, 0, 5])
    at = torch.arange(48)
    slots = table[at // 16] * 16 + at % 16
    layer.write(torch.randn(48, 2, 64), torch.randn(48, 2, 64), slots, at == 0)
    keys = keys_in_order(layer, table, 48)
    values = in_order(layer.values, layer.value_scales, table, 48)
    kept = torch.stack([torch.randperm(47)[:31] + 1 for _ in range(2)]).sort(dim=1).values
    kept = torch.cat((torch.zeros(2, 1, dtype=torch.int64), kept), dim=1)
    _compact(layer, table, kept)
    heads = torch.arange(2)[:, None]
    assert torch.equal(keys_in_order(layer, table[:2], 32), keys[heads, kept])
    stayed = in_order(layer.values, layer.value_scales, table[:2], 32)
    assert torch.equal(stayed, values[heads, kept])
