"""What several engine tests need: a way to make an engine, and to run it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tinymodel import TEMPLATE as TEMPLATE
from tinymodel import Tiny as Tiny
from tinymodel import byte_alphabet as byte_alphabet
from tinymodel import write_tiny as write_tiny

from engine.config import EngineConfig
from engine.engine import Engine
from engine.kv.fingerprint import layout_fingerprint
from engine.kv.pages import PageLayout
from engine.kv.paging import make_paging
from engine.kv.pins import Pins
from engine.loading import make_pool
from engine.models.model import Model
from engine.process.protocol import Delta, Finished
from engine.sampling import Sampling
from engine.text.tokenizer import Tokenizer

GREEDY = Sampling(temperature=0.0, max_tokens=24)
REFERENCE_VARIABLE = "REJOINDER_REFERENCE"


class Kit(NamedTuple):
    """A loaded model, from which engines of any kind are made."""

    model: Model
    tokenizer: Tokenizer

    def engine(
        self,
        *,
        kv_dtype: str = "fp32",
        page_tokens: int = 32,
        num_pages: int = 64,
        max_batch: int = 16,
        step_tokens: int = 64,
        max_context: int = 8192,
        **kept: Any,
    ) -> Engine:
        """`kept`: what the config says of prefix, pins, swap and disk (`kv_...`)."""
        layout = PageLayout.of(self.model.shape, dtype=kv_dtype, page_tokens=page_tokens)
        config = EngineConfig(
            model="", kv_dtype=kv_dtype, page_tokens=page_tokens,
            kv_memory_bytes=num_pages * layout.page_bytes, **kept,
        )  # fmt: skip
        pool = make_pool(config, self.model, self.tokenizer)
        fingerprint = layout_fingerprint(
            pool, self.model.shape, weights=self.model.weights, weights_sha256="of the test"
        )
        return Engine(
            model=self.model, tokenizer=self.tokenizer, pool=pool,
            paging=make_paging(config, pool, fingerprint=fingerprint),
            pins=Pins(config.kv_pin, encoders=[self.tokenizer.encode]), max_context=max_context,
            max_batch=max_batch, step_tokens=step_tokens, long_context=config.long_context,
        )  # fmt: skip


class Answered(NamedTuple):
    text: str
    reason: str
    num_tokens: int
    pieces: list[str]


def drain(engine: Engine, *, each_step: Callable[[], None] = lambda: None) -> dict:
    """Step until idle. Answers by (request_id, index); the pages are whole after each step."""
    pieces: dict[tuple[int, int], list[str]] = {}
    answers: dict[tuple[int, int], Answered] = {}
    while engine.busy:
        for event in engine.step():
            key = (event.request_id, event.index)
            match event:
                case Delta():
                    pieces.setdefault(key, []).append(event.text)
                case Finished():
                    texts = pieces.get(key, [])
                    answers[key] = Answered(
                        "".join(texts), event.reason, event.completion_tokens, texts
                    )
        engine.pages.check_integrity()
        each_step()
    return answers


def answer(engine: Engine, prompt_ids: list[int], sampling: Sampling = GREEDY) -> Answered:
    """One request, alone."""
    engine.add(1, prompt_ids, sampling=sampling)
    return drain(engine)[1, 0]


def reference_paths(name: str = "smollm2.json") -> list[Path]:
    """A record of another implementation, where there is one beside the checkout or in the folder
    that the environment says."""
    default = Path(__file__).parents[3] / "shared" / "reference"
    path = Path(os.environ.get(REFERENCE_VARIABLE, default)) / name
    return [path] if path.is_file() else []
