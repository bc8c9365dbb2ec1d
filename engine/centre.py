"""The mean key of each layer and head, which INT8 pages take off before rounding."""

import torch

from engine.batch import Chunk, build_batch
from engine.model import Model
from engine.pages import PageLayout
from engine.pool import PagePool
from engine.tokenizer import Tokenizer

# Any plain text does: the offset is a property of the weights. Sentences of different kinds,
# so that no subject stands out.
CALIBRATION_TEXT = """\
The harbour lies where the river meets the sea. In the morning, fishing boats come back with the \
tide, and their catch is sold before noon. What does a kilo of mackerel cost? About 4.50, says the \
woman at the scales, less than last year. She has worked here since 1998.

To build the project, run `make all`; the binary is written to build/app. If a test fails, read \
the log first: def check(value): return value is not None and len(value) > 0.

Dear Ms Ortega, thank you for your letter of 12 March. We regret the delay, and have sent the \
replacement parts today. Light travels about 300,000 kilometres in a second; sound in air needs \
almost three seconds for one. Yes, I think so too! - Then why did you not say it?
"""
_SKIPPED_POSITIONS = 8
"""The first positions gather attention that has nowhere else to go; their keys are outliers."""


@torch.inference_mode()
def key_centres(model: Model, tokenizer: Tokenizer, *, page_tokens: int) -> torch.Tensor:
    """float32 [num_layers, num_kv_heads, head_dim]: means over the built-in text, after RoPE."""
    token_ids = tokenizer.encode(CALIBRATION_TEXT)[: model.shape.max_positions]
    layout = PageLayout.of(model.shape, dtype="fp32", page_tokens=page_tokens)
    num_pages = layout.num_pages(len(token_ids))
    pool = PagePool(layout, num_pages)
    chunk = Chunk(token_ids=token_ids, first=0, pages=range(num_pages), samples=True)
    model.forward(build_batch([chunk], page_tokens=page_tokens), pool)
    return torch.stack([_mean_key(layer.keys, len(token_ids)) for layer in pool.layers])


def _mean_key(keys: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """`keys` [num_pages, num_kv_heads, page_tokens, head_dim] → [num_kv_heads, head_dim]"""
    by_position = keys.transpose(0, 1).flatten(1, 2)[:, :num_tokens]
    return by_position[:, _SKIPPED_POSITIONS:].mean(dim=1)
