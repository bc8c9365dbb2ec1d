"""By what a model is known that says nothing of itself: its vectors of a few texts."""

import contextlib
import hashlib
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from index.embedders.batching import Vectors

logger = logging.getLogger("rejoinder.embedder")

PROBES = (
    "How do I renew a library card?",
    "The tide comes in twice a day, and a little later every day.",
    "def area(radius): return 3.14159 * radius ** 2",
    "明天的会议几点开始？",
    "Как продлить паспорт за границей?",
)
"""In several scripts: a model whose vocabulary was cut to one language is the same in that one."""

_LEAST_COSINE = 0.999
"""Another order of summation moves a vector less than this; other weights move it more."""
_DIGITS = 4


def agree(one: "Vectors", other: "Vectors") -> bool:
    """Whether two sets of unit vectors ([num_texts, dimension]) come from one model."""
    if one.shape != other.shape:
        return False
    cosines = np.einsum("td,td->t", one, other)
    return bool((cosines >= _LEAST_COSINE).all())


def fingerprint(probes: "Vectors", name: str, cache: Path) -> str:
    """16 hex digits of a model. What was seen under `name` before is kept in `cache`, so that
    rounding errors of the server do not make it another model after a restart. Blocks."""
    kept = cache / "embedders" / f"remote-{_digest(name.encode())}.npy"
    known = _read(kept)
    if known is None or not agree(known, probes):
        known = probes
        try:
            _keep(known, kept)
        except OSError as error:
            logger.warning("the embedder's fingerprint cannot be kept: %s", error)
    return _digest((np.round(known, _DIGITS) + 0.0).astype("<f4").tobytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _read(kept: Path) -> "Vectors | None":
    with contextlib.suppress(OSError, ValueError, EOFError):
        return np.asarray(np.load(kept), dtype=np.float32)
    return None


def _keep(probes: "Vectors", kept: Path) -> None:
    """Appear whole or not at all: other workers read it too."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    handle, making = tempfile.mkstemp(prefix=".making-", dir=kept.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, probes)
        Path(making).replace(kept)
    except BaseException:
        Path(making).unlink(missing_ok=True)
        raise
