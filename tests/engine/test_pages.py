import pytest

from engine.kv.pages import PageLayout

SMOLLM2 = {"num_layers": 30, "num_kv_heads": 3, "head_dim": 64}


def _layout(dtype: str = "int8", page_tokens: int = 32, **sizes: int) -> PageLayout:
    return PageLayout(dtype=dtype, page_tokens=page_tokens, **(SMOLLM2 | sizes))


def test_smollm2_takes_half_of_fp16_and_a_sixth_of_a_cache_for_each_query_head() -> None:
    assert _layout("int8").bytes_per_token == 11_880
    assert _layout("bf16").bytes_per_token == 23_040
    assert _layout("bf16", num_kv_heads=9).bytes_per_token == 69_120
    assert 11_880 / 23_040 <= 0.52


def test_the_formula_holds_where_parts_fill_whole_cache_lines() -> None:
    for kv_heads, head_dim in ((3, 64), (2, 64), (8, 128), (4, 80)):
        layout = _layout(num_kv_heads=kv_heads, head_dim=head_dim)
        assert layout.bytes_per_token == 2 * 30 * kv_heads * (head_dim + 2)


@pytest.mark.parametrize(("kv_heads", "head_dim"), [(3, 64), (8, 128), (1, 256), (2, 96), (8, 80)])
def test_scales_for_each_32_channels_stay_below_the_promise(kv_heads: int, head_dim: int) -> None:
    groups = head_dim // 32 if head_dim % 32 == 0 else 1
    layout = _layout("int8-hq", num_kv_heads=kv_heads, head_dim=head_dim)
    assert layout.num_groups == groups
    usual = _layout("int8", num_kv_heads=kv_heads, head_dim=head_dim)
    assert usual.num_groups == (groups if head_dim > 128 else 1)
    assert layout.bytes_per_token == 2 * 30 * kv_heads * (head_dim + 2 * groups)
    fp16 = _layout("bf16", num_kv_heads=kv_heads, head_dim=head_dim)
    assert layout.bytes_per_token / fp16.bytes_per_token <= 0.535


@pytest.mark.parametrize("dtype", ["int8", "int8-hq", "bf16", "fp32"])
@pytest.mark.parametrize("page_tokens", [16, 32, 64])
@pytest.mark.parametrize(("kv_heads", "head_dim"), [(1, 80), (3, 64), (2, 96), (1, 256)])
def test_parts_follow_each_other_on_cache_lines_without_overlap(
    dtype: str, page_tokens: int, kv_heads: int, head_dim: int
) -> None:
    layout = _layout(dtype, page_tokens, num_kv_heads=kv_heads, head_dim=head_dim)
    vectors = kv_heads * page_tokens * head_dim * layout.element_bytes
    scales = kv_heads * layout.num_groups * page_tokens * 2 if layout.has_scales else 0
    end = 0
    for layer in range(layout.num_layers):
        for start, size in (
            (layout.keys_at(layer), vectors),
            (layout.values_at(layer), vectors),
            (layout.key_scales_at(layer), scales),
            (layout.value_scales_at(layer), scales),
        ):
            assert start % 64 == 0
            assert end <= start < end + 64
            end = start + size
    assert end <= layout.page_bytes < end + 64


def test_a_page_more_is_needed_for_the_first_token_of_it() -> None:
    assert [_layout().num_pages(tokens) for tokens in (0, 1, 32, 33)] == [0, 1, 1, 2]
