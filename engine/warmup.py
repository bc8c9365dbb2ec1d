"""Kernels that are compiled when they are first needed: needed before the first request comes."""

import logging
import time
from collections.abc import Iterable

from engine.engine import Engine
from engine.process.protocol import Sharing
from engine.sampling import Sampling

LENGTHS = (2, 600)
"""Of prompts: a decode of the second is split over its past, by other kernels."""
_REQUEST = 0
"""Those of clients begin at 1."""

log = logging.getLogger("engine.warmup")


def warm_up(engine: Engine, lengths: Iterable[int] = LENGTHS) -> None:
    """A prefill and a decode of each length that fits; the engine is idle again afterwards, and
    keeps no page of it. Adds to what the engine counts."""
    started = time.perf_counter()
    sampling = Sampling(temperature=0, max_tokens=2, ignore_eos=True)
    for length in lengths:
        if length + 2 <= engine.max_context:
            engine.add(_REQUEST, [0] * length, sampling=sampling, sharing=Sharing(publishes=False))
            while engine.busy:
                engine.step()
    log.info("kernels are warm after %.1f s", time.perf_counter() - started)
