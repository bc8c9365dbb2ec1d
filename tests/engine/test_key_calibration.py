"""What a model tells of itself at load."""

import pytest
import torch
from enginekit import Kit

from engine.kv.centre import key_centres
from engine.kv.fingerprint import layout_fingerprint
from engine.kv.pages import PageLayout
from engine.kv.pool import PagePool
from engine.models.calibration import calibrate


def fingerprint(tiny: Kit, *, threads: int) -> bytes:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        centres = key_centres(calibrate(tiny.model, tiny.tokenizer, page_tokens=16))
    finally:
        torch.set_num_threads(before)
    layout = PageLayout.of(tiny.model.shape, dtype="int8", page_tokens=16)
    pool = PagePool(layout, 1, key_centres=centres)
    return layout_fingerprint(pool, tiny.model.shape, weights="fp32", weights_sha256="")


@pytest.mark.parametrize("threads", [1, 2])
def test_pages_on_disk_are_known_again_whatever_the_number_of_threads(
    tiny: Kit, threads: int
) -> None:
    assert fingerprint(tiny, threads=threads) == fingerprint(tiny, threads=1)
