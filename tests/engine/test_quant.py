import math

import pytest
import torch

from engine.kv.quant import hadamard_matrix, quantise


def test_codes_are_the_rounded_quotient_by_the_stored_scale() -> None:
    vectors = torch.randn(500, 3, 64) * torch.logspace(-3, 3, 500)[:, None, None]
    rounded = quantise(vectors)
    scales = (vectors.abs().amax(-1) / 127).half()
    assert torch.equal(rounded.scales, scales)
    codes = (vectors / scales.float()[..., None]).round().clamp(-127, 127)
    assert torch.equal(rounded.codes.float(), codes)


def test_reading_is_off_by_half_a_step_at_most() -> None:
    vectors = torch.randn(1000, 64)
    rounded = quantise(vectors)
    steps = rounded.scales.float()[:, None]
    error = (rounded.codes * steps - vectors).abs()
    # The largest value may be clamped where the scale was rounded down.
    assert (error <= 0.5 * steps + vectors.abs() * 2**-11).all()


def test_halves_go_to_the_even_code() -> None:
    rounded = quantise(torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]]))
    assert rounded.scales.item() == 1.0
    assert rounded.codes.tolist() == [[127, 0, 2, 2, 0, -2]]


def test_minus_128_is_never_written() -> None:
    # 127.06 / 127 rounds down in fp16, so the quotient passes 127.
    vectors = -torch.linspace(100, 140, 4001)[:, None]
    assert quantise(vectors).codes.min().item() == -127


@pytest.mark.parametrize("tiny", [0.0, 1e-9, -1e-8])
def test_zeros_and_what_vanishes_beside_them_become_zero(tiny: float) -> None:
    rounded = quantise(torch.full((2, 8), tiny))
    assert not rounded.codes.any()
    assert not rounded.scales.any()


def test_what_is_not_finite_stays_in_its_own_element() -> None:
    rounded = quantise(torch.tensor([[math.nan, 1.0, -2.0], [math.inf, -math.inf, 0.0]]))
    assert rounded.scales.isfinite().all()
    assert rounded.codes.tolist() == [[0, 64, -127], [127, -127, 0]]


@pytest.mark.parametrize("size", [16, 64, 80, 96, 128, 256])
def test_the_rotation_is_orthonormal_and_symmetric(size: int) -> None:
    matrix = hadamard_matrix(size)
    assert torch.allclose(matrix @ matrix, torch.eye(size), atol=1e-5)
    assert torch.equal(matrix, matrix.T)


def test_the_rotation_spreads_one_loud_channel_over_its_block() -> None:
    turned = torch.eye(64)[5] @ hadamard_matrix(64)
    assert torch.allclose(turned.abs(), torch.full((64,), 1 / 8))
