"""int8 linear layers, of 8 and 4 bits: against the product with the very weights that they hold."""

import pytest
import torch

from engine.kernels.bindings import Kernels
from engine.memory import Arena
from engine.models.linear import Int8Linear, Loudness, has_few_levels, round_weight

# (outputs, inputs): whole tiles and groups, and what is left over of either.
SHAPES = [(32, 32), (960, 576), (576, 1536), (70, 40), (33, 31), (1, 33), (259, 100)]


def _layer(kernels: Kernels, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Int8Linear:
    return Int8Linear(weight, bias, kernels=kernels, arena=Arena())


def _rounded(weight: torch.Tensor) -> torch.Tensor:
    bits = 4 if has_few_levels(weight) else 8
    return round_weight(weight, bits=bits).values().flatten(1)[:, : weight.shape[1]]


def _of_levels(num_outputs: int, num_inputs: int) -> torch.Tensor:
    """As a file of 4 bits gives them: not every group has its lowest or highest level."""
    num_groups = -(-num_inputs // 32)
    highest = torch.randint(3, 16, (num_outputs, num_groups, 1))
    levels = torch.minimum(torch.randint(0, 16, (num_outputs, num_groups, 32)), highest)
    scales, minima = torch.rand(2, num_outputs, num_groups, 1).half().float()
    return ((levels - 8) * (scales + 0.1) - minima).flatten(1)[:, :num_inputs]


def _random(num_outputs: int, num_inputs: int, bits: int) -> torch.Tensor:
    make = torch.randn if bits == 8 else _of_levels
    return make(num_outputs, num_inputs)


def _error(got: torch.Tensor, expected: torch.Tensor) -> float:
    return ((got - expected).norm() / expected.norm()).item()


def _all_quiet(layer: Int8Linear, num_inputs: int) -> None:
    layer.watch(Loudness(max_noise=1e9))
    layer(torch.randn(5, num_inputs))
    assert layer.struct.num_loud == 0


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("num_outputs", "num_inputs"), SHAPES)
def test_products_are_those_of_the_rounded_weights(
    kernels: Kernels, num_outputs: int, num_inputs: int, bits: int
) -> None:
    torch.manual_seed(1)
    weight, bias = _random(num_outputs, num_inputs, bits), torch.randn(num_outputs)
    layer = _layer(kernels, weight, bias)
    assert layer.struct.bits == bits
    for num_tokens in (1, 2, 7, 8, 9, 13, 40):
        inputs = torch.randn(num_tokens, num_inputs)
        expected = inputs @ _rounded(weight).T + bias
        assert _error(layer(inputs), expected) < 1e-3, "16 bits"
    _all_quiet(layer, num_inputs)
    inputs = torch.randn(9, num_inputs)
    # 8 bits, or 16 where the CPU multiplies no fewer.
    assert _error(layer(inputs), inputs @ _rounded(weight).T + bias) < 0.02


def test_rounded_weights_are_within_half_a_step(kernels: Kernels) -> None:
    torch.manual_seed(2)
    weight = torch.randn(64, 96)
    step = (weight.view(64, 3, 32).amax(-1) - weight.view(64, 3, 32).amin(-1)) / 255
    # fp16 scales and minima add a little to the half.
    allowed = (0.5 * step + 2e-3).repeat_interleave(32, dim=1)
    assert ((_rounded(weight) - weight).abs() <= allowed).all()


def test_weights_of_sixteen_levels_are_kept_in_four_bits_and_come_through_whole() -> None:
    torch.manual_seed(3)
    weight = _of_levels(64, 128)
    assert has_few_levels(weight)
    assert _error(_rounded(weight), weight) < 2e-3, "fp16 scales and minima"
    worst = (_rounded(weight) - weight).abs() / round_weight(weight, bits=4).scales.float().amax()
    assert worst.max() < 0.03


@pytest.mark.parametrize("spoiled", [0, 40, 63])
def test_one_weight_between_levels_takes_eight_bits(kernels: Kernels, spoiled: int) -> None:
    torch.manual_seed(6)
    weight = _of_levels(64, 96)
    weight[spoiled, 50] += 0.3 * (weight[spoiled].amax() - weight[spoiled].amin()) / 15
    assert not has_few_levels(weight)
    assert _layer(kernels, weight).struct.bits == 8


def test_the_largest_products_of_four_bits_do_not_overflow(kernels: Kernels) -> None:
    """All codes 15, all inputs the largest of either sign; the first input makes the group loud."""
    weight = torch.full((32, 32), 15.0)
    weight[:, 0] = 0.0  # the minimum, so that the others have the code 15
    layer = _layer(kernels, weight)
    assert layer.struct.bits == 4
    for value in (127.0, -127.0, 126.5):
        inputs = torch.full((1, 32), value)
        expected = inputs @ weight.T
        assert _error(layer(inputs), expected) < 1e-3
        _all_quiet(layer, 32)
        assert _error(layer(inputs), expected) < 0.01
        layer._set_loud(torch.arange(1))


@pytest.mark.parametrize("bits", [4, 8])
def test_a_row_does_not_depend_on_the_rows_beside_it(kernels: Kernels, bits: int) -> None:
    torch.manual_seed(4)
    layer = _layer(kernels, _random(100, 200, bits))
    layer.watch(Loudness(max_noise=1.0))
    inputs = torch.randn(50, 200)
    layer(inputs)
    alone = torch.cat([layer(row[None]) for row in inputs])
    for num_tokens in range(1, 51):
        assert torch.equal(layer(inputs[:num_tokens]), alone[:num_tokens]), num_tokens
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert torch.equal(layer(inputs), alone)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("bits", [4, 8])
def test_loud_groups_are_found_and_keep_their_precision(kernels: Kernels, bits: int) -> None:
    torch.manual_seed(5)
    weight = _random(64, 320, bits)
    inputs = torch.randn(30, 320)
    inputs[:, 70] *= 100  # group 2
    inputs[:, 300] *= 30  # group 9
    layer = _layer(kernels, weight)
    expected = inputs @ _rounded(weight).T
    _all_quiet(layer, 320)
    quiet = (layer(inputs) - expected).norm()
    layer.watch(Loudness(max_noise=3.0))
    layer(inputs)
    assert layer._loud.tolist() == [2, 9]
    # Where all groups have 16 bits anyway, nothing is left to gain.
    assert (layer(inputs) - expected).norm() < max(quiet / 5, 1e-3 * expected.norm())


def test_nothing_gives_nothing(kernels: Kernels) -> None:
    layer = _layer(kernels, torch.zeros(40, 64))
    assert layer(torch.randn(3, 64)).abs().max() == 0
    layer = _layer(kernels, torch.randn(40, 64))
    assert layer(torch.zeros(3, 64)).abs().max() == 0
