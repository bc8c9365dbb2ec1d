"""Keys of Qwen2 carry large constants in some channels, of which a softmax knows nothing."""

import msgspec
import torch
from enginekit import Kit

from engine.batch import Chunk, build_batch
from engine.kv.centre import key_centres
from engine.kv.pages import PageLayout
from engine.kv.pool import LayerPages, PagePool
from engine.kv.quant import KeyCentres
from engine.models.calibration import calibrate

TEXT = """\
The bridge had been closed since spring, so the bus took the long way round: past the mill, past \
the two farms, and along the canal, where 14 boats lay side by side. "It adds 20 minutes," said \
the driver, "and nobody complains any more." Each stop had a name older than the road. At the \
third a woman with a cello got in, paid for two, and put the cello by the window.
"""


class _Offset:
    """In the place of a layer's `write`."""

    def __init__(self, layer: LayerPages, offset: torch.Tensor) -> None:
        self._write = layer.write
        self._offset = layer.turn(offset)

    def __call__(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        slots: torch.Tensor,
        begins: torch.Tensor | None,
    ) -> None:
        self._write(keys + self._offset, values, slots, begins)


@torch.inference_mode()
def _logprobs(
    kit: Kit, ids: list[int], dtype: str, offsets: torch.Tensor, centres: KeyCentres
) -> torch.Tensor:
    layout = PageLayout.of(kit.model.shape, dtype=dtype, page_tokens=32)
    num_pages = layout.num_pages(len(ids))
    pool = PagePool(layout, num_pages, key_centres=centres if layout.has_scales else None)
    for layer, offset in zip(pool.layers, offsets, strict=True):
        layer.write = _Offset(layer, offset)
    chunk = Chunk(token_ids=ids, first=0, pages=range(num_pages), samples=True)
    batch = msgspec.structs.replace(
        build_batch([chunk], page_tokens=32), sampled_rows=torch.arange(len(ids))
    )
    return kit.model.forward(batch, pool).log_softmax(-1)


def test_offsets_of_keys_leave_the_divergence_within_twice(smollm2: Kit) -> None:
    torch.manual_seed(1)
    ids = smollm2.tokenizer.encode(TEXT)
    centres = key_centres(calibrate(smollm2.model, smollm2.tokenizer, page_tokens=32))
    none = torch.zeros_like(centres.usual)
    loud = none.clone()
    loud[..., [3, 19, 40, 55]] = torch.tensor([60.0, -45.0, 30.0, -90.0])
    shifted = KeyCentres(usual=centres.usual + loud, first=centres.first + loud)
    exact = _logprobs(smollm2, ids, "fp32", none, centres)

    def divergence(dtype: str, offsets: torch.Tensor, taken_off: KeyCentres) -> float:
        rounded = _logprobs(smollm2, ids, dtype, offsets, taken_off)
        return (exact.exp() * (exact - rounded)).sum(-1).mean().item()

    for dtype in ("int8", "int8-hq"):
        usual = divergence(dtype, none, centres)
        assert divergence(dtype, loud, shifted) < 2 * usual
        assert divergence(dtype, loud, centres) > 3 * usual, (
            "the case is no case without the centre"
        )
