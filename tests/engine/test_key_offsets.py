"""Keys of Qwen2 carry large constants in some channels, of which a softmax knows nothing."""

import msgspec
import torch
from enginekit import Kit
from prose import BRIDGE

from engine.batch import Chunk, build_batch
from engine.kv.centre import key_centres
from engine.kv.pages import PageLayout
from engine.kv.pool import PagePool
from engine.kv.quant import KeyCentres
from engine.models.calibration import calibrate
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


def _centres(kit: Kit) -> KeyCentres:
    return key_centres(calibrate(kit.model, kit.tokenizer, page_tokens=32))


def _pool(kit: Kit, dtype: str, centres: KeyCentres | None = None) -> PagePool:
    layout = PageLayout.of(kit.model.shape, dtype=dtype, page_tokens=32)
    return PagePool(layout, 4, key_centres=centres)


def _logprobs(kit: Kit, pool: PagePool) -> torch.Tensor:
    """Of the tokens that come next in a text."""
    ids = kit.tokenizer.encode(BRIDGE)
    chunk = Chunk(token_ids=ids, first=0, pages=range(4), samples=True)
    batch = msgspec.structs.replace(
        build_batch([chunk], page_tokens=32), sampled_rows=torch.arange(len(ids))
    )
    return kit.model.forward(batch, pool).log_softmax(-1)


def _divergence(exact: torch.Tensor, rounded: torch.Tensor) -> float:
    """KL in nats."""
    return (exact.exp() * (exact - rounded)).sum(-1).mean().item()


def test_calibration_finds_the_offsets_that_a_bias_gives_to_keys(
    smollm2: Kit, smollm2_file: GGUFFile
) -> None:
    model = load_model(
        Biased(smollm2_file.path), weights="fp32", max_positions=512, progress=lambda _: None
    )
    loud = Kit(model, smollm2.tokenizer)
    exact, exact_loud = (_logprobs(kit, _pool(kit, "fp32")) for kit in (smollm2, loud))
    centres, centres_loud = _centres(smollm2), _centres(loud)
    for dtype in ("int8", "int8-hq"):
        plain_pool = _pool(smollm2, dtype, centres)
        usual = _divergence(exact, _logprobs(smollm2, plain_pool))
        assert (
            _divergence(exact_loud, _logprobs(loud, _pool(loud, dtype, centres_loud))) < 2 * usual
        )
        without = _divergence(exact_loud, _logprobs(loud, plain_pool))
        assert without > 3 * usual, "the case is no case without the centre"
