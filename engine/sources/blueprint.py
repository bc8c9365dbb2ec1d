"""What the files of a model say about how it is built, in one form."""

from typing import Literal

import msgspec

from engine.errors import ModelUnusable
from engine.shape import ModelShape

MAX_LAYERS = 10_000
"""More are a mistake, or meant to use up our memory."""
MAX_SIZE = 2**31


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """What sets the layers of a family apart. Sizes are a model's own."""

    name: str
    activation: Literal["silu", "gelu_tanh"] = "silu"
    qkv_bias: bool = False
    """Queries, keys and values have one. Any linear layer may."""
    head_norms: bool = False
    """Each head of queries and keys is normalised before RoPE."""
    post_norms: bool = False
    """Attention and MLP are normalised once more before they are added."""
    scaled_embedding: bool = False
    """Embeddings are multiplied by the root of their size."""

    @property
    def plain(self) -> bool:
        """Built like Llama, which is what the fused kernel computes."""
        return self.activation == "silu" and not self.head_norms and not self.post_norms


LLAMA = Family(name="llama")
QWEN2 = Family(name="qwen2", qkv_bias=True)
QWEN3 = Family(name="qwen3", head_norms=True)
GEMMA3 = Family(
    name="gemma3",
    activation="gelu_tanh",
    head_norms=True,
    post_norms=True,
    scaled_embedding=True,
)


class Blueprint(msgspec.Struct, frozen=True, kw_only=True):
    """`attention_scale` multiplies the products of queries and keys."""

    family: Family
    shape: ModelShape
    attention_scale: float
    tied: bool
    """The output layer is the embedding."""


def checked(shape: ModelShape) -> ModelShape:
    """The same. Raises ModelUnusable for numbers that no model has."""
    sizes = (
        shape.num_layers, shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.hidden_size,
        shape.intermediate_size, shape.vocab_size, shape.max_positions,
        *(window for window in shape.windows if window is not None),
    )  # fmt: skip
    if not all(1 <= size <= MAX_SIZE for size in sizes):
        raise ModelUnusable(f"a size of the model is not in 1 … {MAX_SIZE}: {shape}")
    if shape.num_heads % shape.num_kv_heads:
        raise ModelUnusable(
            f"{shape.num_heads} query heads cannot share {shape.num_kv_heads} KV heads"
        )
    if shape.head_dim % 2:
        raise ModelUnusable(f"a head of {shape.head_dim} channels has no pairs to turn")
    if len(shape.windows) != shape.num_layers:
        raise ModelUnusable(f"{shape.num_layers} layers, but windows of {len(shape.windows)}")
    return shape
