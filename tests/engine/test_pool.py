import pytest
import torch
from enginekit import Kit

from engine.kv.fingerprint import layout_fingerprint
from engine.kv.pages import PageLayout
from engine.kv.pool import PagePool
from engine.kv.quant import KeyCentres, quantise
from engine.kv.vectors import PagedVectors


def _layout(dtype: str, page_tokens: int = 32) -> PageLayout:
    return PageLayout(
        dtype=dtype, page_tokens=page_tokens, num_layers=3, num_kv_heads=2, head_dim=16
    )


def _page(vectors: PagedVectors, page: int) -> torch.Tensor:
    return vectors.take(torch.tensor([page]))[0]


@pytest.mark.parametrize("dtype", ["int8", "bf16", "fp32"])
def test_all_that_a_layer_writes_lies_inside_its_part_of_the_page(dtype: str) -> None:
    layout = _layout(dtype)
    pool = PagePool(layout, 4)
    pool.storage.zero_()
    ones = torch.ones(32, 2, 16)
    pool.layers[1].write(ones, ones, torch.arange(32) + 2 * 32)
    touched = pool.storage.nonzero()
    assert touched[:, 0].unique().tolist() == [2]
    first, last = touched[:, 1].min().item(), touched[:, 1].max().item()
    assert layout.keys_at(1) <= first
    assert last < layout.keys_at(2)


def test_a_copied_page_holds_the_same_keys_and_values() -> None:
    pool = PagePool(_layout("int8"), 4)
    keys, values = torch.randn(32, 2, 16), torch.randn(32, 2, 16)
    pool.layers[2].write(keys, values, torch.arange(32) + 32)
    pool.storage[3] = pool.storage[1]
    assert torch.equal(_page(pool.layers[2].keys, 3), quantise(keys).codes.transpose(0, 1))
    turned = quantise(pool.layers[2].turn(values))
    assert torch.equal(_page(pool.layers[2].values, 3), turned.codes.transpose(0, 1))
    assert torch.equal(pool.layers[2].value_scales[3], turned.scales.T)


def test_the_centre_is_taken_off_keys_and_not_off_values() -> None:
    centres = torch.randn(3, 2, 16) * 10
    pool = PagePool(_layout("int8"), 1, key_centres=KeyCentres(usual=centres, first=centres))
    layer = pool.layers[0]
    keys = centres[0].expand(5, 2, 16)
    layer.write(layer.turn(keys), keys, torch.arange(5))
    read = _page(layer.keys, 0)[:, :5] * layer.key_scales[0, :, :5, None].float()
    assert read.abs().max() < 1e-3
    read = _page(layer.values, 0)[:, :5] * layer.value_scales[0, :, :5, None].float()
    assert torch.allclose(layer.turn_back(read.transpose(0, 1)), keys, atol=0.3)


def test_each_group_of_channels_has_its_own_scale_and_values_come_back_unturned() -> None:
    torch.manual_seed(1)
    errors = {}
    keys, values = torch.randn(2, 32, 2, 64)
    values[..., :32] *= 30
    for dtype in ("int8", "int8-hq"):
        layout = PageLayout(dtype=dtype, page_tokens=32, num_layers=1, num_kv_heads=2, head_dim=64)
        layer = PagePool(layout, 1).layers[0]
        layer.write(layer.turn(keys), values, torch.arange(32))
        scales = layer.key_scales[0].view(2, layout.num_groups, 32)
        read = _page(layer.keys, 0).float().unflatten(-1, (layout.num_groups, -1))
        turned = (read * scales.mT[..., None]).flatten(-2).transpose(0, 1)
        errors[dtype] = (layer.turn(turned) - keys).norm()
        scales = layer.value_scales[0].view(2, layout.num_groups, 32)
        read = _page(layer.values, 0).float().unflatten(-1, (layout.num_groups, -1))
        back = layer.turn_back((read * scales.mT[..., None]).flatten(-2).transpose(0, 1))
        assert (back - values).norm() < 0.01 * values.norm()
    assert errors["int8-hq"] < 0.95 * errors["int8"]


def test_float_pages_hold_vectors_as_they_come() -> None:
    pool = PagePool(_layout("fp32", page_tokens=16), 3)
    keys, values = torch.randn(20, 2, 16), torch.randn(20, 2, 16)
    layer = pool.layers[1]
    assert layer.turn(keys) is keys
    layer.write(keys, values, torch.arange(20) + 16)
    assert torch.equal(
        layer.keys.take(torch.arange(1, 3)).transpose(1, 2).reshape(32, 2, 16)[:20], keys
    )
    assert torch.equal(
        layer.values.take(torch.arange(1, 3)).transpose(1, 2).reshape(32, 2, 16)[:20], values
    )


def test_a_pool_on_another_device_has_a_fingerprint(
    tiny: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tensor of one device may meet one of another; of the device here only shapes are known."""
    layout = PageLayout.of(tiny.model.shape, dtype="int8", page_tokens=32, for_cpu=False)
    zeros = torch.zeros(layout.num_layers, layout.num_kv_heads, layout.head_dim)
    centres = KeyCentres(usual=zeros, first=zeros)
    pool = PagePool(layout, 1, device=torch.device("meta"), key_centres=centres)

    def brought(part: torch.Tensor) -> torch.Tensor:
        return torch.zeros(part.shape, dtype=part.dtype)

    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "cpu", brought)
        there = layout_fingerprint(pool, tiny.model.shape, weights="bf16", weights_sha256="")
    here = PagePool(layout, 1, key_centres=centres)
    assert there != layout_fingerprint(here, tiny.model.shape, weights="bf16", weights_sha256="")
