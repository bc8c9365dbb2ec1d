"""A short text passes through a model at load, to see what is typical of it."""

from collections.abc import Sequence

import msgspec
import torch

from engine.batch import Chunk, build_batch
from engine.kv.pages import PageLayout
from engine.kv.pool import PagePool
from engine.models.linear import LOUDNESS
from engine.models.model import Model
from engine.text.tokenizer import Tokenizer

# Any plain text does: the offset is a property of the weights. Sentences of different kinds,
# so that no subject stands out.
_TEXT = """\
The harbour lies where the river meets the sea. In the morning, fishing boats come back with the \
tide, and their catch is sold before noon. What does a kilo of mackerel cost? About 4.50, says the \
woman at the scales, less than last year. She has worked here since 1998.

To build the project, run `make all`; the binary is written to build/app. If a test fails, read \
the log first: def check(value): return value is not None and len(value) > 0.

Dear Ms Ortega, thank you for your letter of 12 March. We regret the delay, and have sent the \
replacement parts today. Light travels about 300,000 kilometres in a second; sound in air needs \
almost three seconds for one. Yes, I think so too! - Then why did you not say it?
"""


_NUM_BEGINNINGS = 16


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """What a model's layers wrote into unquantised pages."""

    text: PagePool
    """In order from page 0 on."""
    num_tokens: int
    """Of the text."""
    beginnings: PagePool
    """Sequences of one token, a page each."""


@torch.inference_mode()
def calibrate(model: Model, tokenizer: Tokenizer, *, page_tokens: int) -> Calibration:
    """Lets int8 layers find the inputs that they round to 16 bits. Bit for bit the same in every
    process on one machine, whatever its number of threads: pages on disk outlive restarts only so.
    """
    token_ids = tokenizer.begun(tokenizer.encode(_TEXT))[: model.shape.max_positions]
    layout = PageLayout.of(model.shape, dtype="fp32", page_tokens=page_tokens)
    num_pages = layout.num_pages(len(token_ids))
    for layer in model.int8_layers:
        layer.watch(LOUDNESS)
    whole = Chunk(token_ids=token_ids, first=0, pages=range(num_pages), samples=True)
    firsts = [
        Chunk(token_ids=[token_id], first=0, pages=[page], samples=True)
        for page, token_id in enumerate(_beginnings(tokenizer, token_ids))
    ]
    return Calibration(
        text=_computed(model, layout, [whole]),
        num_tokens=len(token_ids),
        beginnings=_computed(model, layout, firsts),
    )


def _beginnings(tokenizer: Tokenizer, token_ids: Sequence[int]) -> list[int]:
    """Tokens that sequences begin with: the one that all do, else some of a text."""
    return tokenizer.begun([])[:1] or list(dict.fromkeys(token_ids))[:_NUM_BEGINNINGS]


def _computed(model: Model, layout: PageLayout, chunks: Sequence[Chunk]) -> PagePool:
    """Pages 0 … of a new pool, with what the chunks wrote."""
    pool = PagePool(layout, sum(len(chunk.pages) for chunk in chunks), device=model.device)
    batch = build_batch(chunks, page_tokens=layout.page_tokens)
    if model.int8_layers:  # of which the output layer is one: it is to see more than one token
        all_rows = torch.arange(len(batch.token_ids))
        batch = msgspec.structs.replace(batch, sampled_rows=all_rows)
    model.compute(batch.on(model.device), pool)  # no graph: no other step looks like it
    return pool
