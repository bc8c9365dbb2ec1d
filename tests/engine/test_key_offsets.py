"""Keys of Qwen2 carry large constants in some channels, of which a softmax knows nothing."""

import msgspec
import torch
from enginekit import Kit
from prose import BRIDGE

from engine.batch import Chunk, build_batch
from engine.config import EngineConfig
from engine.kv.pool import PagePool
from engine.loading import make_pool
from engine.models.families import load_model
from engine.sources.blueprint import QWEN2, Blueprint
from engine.sources.gguf import GGUFFile

LOUD = {30: 60.0, 31: -45.0, 62: 30.0, 63: -90.0}
"""By channel. Those that RoPE turns slowest, as in Qwen2: over a text they stay what they are."""


class Biased(GGUFFile):
    """A Llama as a Qwen2 whose keys have a bias."""

    @property
    def names(self) -> frozenset[str]:  # type: ignore[override]  # cached where nothing is added
        layers = range(super().blueprint(max_positions=1).shape.num_layers)
        return super().names | {f"blk.{n}.attn_{part}.bias" for n in layers for part in "qkv"}

    def blueprint(self, *, max_positions: int) -> Blueprint:
        written = super().blueprint(max_positions=max_positions)
        return msgspec.structs.replace(written, family=QWEN2)

    def tensor(self, name: str) -> torch.Tensor:
        if not name.endswith(".bias"):
            return super().tensor(name)
        bias = torch.zeros(self.shape(name.replace("bias", "weight"))[0])
        if "attn_k" in name:
            heads = bias.view(-1, 64)
            heads[:, list(LOUD)] = torch.tensor(list(LOUD.values()))
        return bias


def _pool(kit: Kit, dtype: str) -> PagePool:
    config = EngineConfig(model="", kv_dtype=dtype, kv_memory_bytes=16 * 2**20)
    return make_pool(config, kit.model, kit.tokenizer)


def _divergence(kit: Kit, pool: PagePool) -> float:
    """Of next tokens, from those over exact pages: KL in nats."""
    ids = kit.tokenizer.encode(BRIDGE)
    chunk = Chunk(token_ids=ids, first=0, pages=range(16), samples=True)
    batch = msgspec.structs.replace(
        build_batch([chunk], page_tokens=32), sampled_rows=torch.arange(len(ids))
    )
    exact, rounded = (
        kit.model.forward(batch, pages).log_softmax(-1) for pages in (_pool(kit, "fp32"), pool)
    )
    return (exact.exp() * (exact - rounded)).sum(-1).mean().item()


def test_calibration_finds_the_offsets_that_a_bias_gives_to_keys(
    smollm2: Kit, smollm2_file: GGUFFile
) -> None:
    model = load_model(
        Biased(smollm2_file.path), weights="fp32", max_positions=512, progress=lambda _: None
    )
    loud = Kit(model, smollm2.tokenizer)
    for dtype in ("int8", "int8-hq"):
        plain_pool = _pool(smollm2, dtype)
        usual = _divergence(smollm2, plain_pool)
        assert _divergence(loud, _pool(loud, dtype)) < 2 * usual
        assert _divergence(loud, plain_pool) > 3 * usual, "the case is no case without the centre"
