"""The fused decoder layer, alone and under an engine, against the plain one."""

from pathlib import Path

import pytest
import torch
from enginekit import Kit, answer, drain, write_tiny
from prose import LIGHTHOUSE

from engine.batch import Chunk, build_batch
from engine.kernels.bindings import Kernels
from engine.kv.pages import PageLayout
from engine.kv.pool import PagePool
from engine.kv.quant import KeyCentres
from engine.models.calibration import calibrate
from engine.models.families import load_model
from engine.models.linear import Int8Linear
from engine.models.step import LayerStep
from engine.sampling import Sampling
from engine.sources.gguf import GGUFFile
from engine.text.tokenizer import tokenizer_from_gguf

NO_END = {258: -100.0}


def _int8(path: Path, kernels: Kernels) -> Kit:
    file = GGUFFile(path)
    model = load_model(
        file, weights="int8", max_positions=512, progress=lambda _: None, kernels=kernels
    )
    assert model.weights == "int8"
    return Kit(model, tokenizer_from_gguf(file))


@pytest.fixture(scope="module")
def int8_tiny(tiny_files, kernels: Kernels) -> Kit:
    return _int8(tiny_files.path, kernels)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(4, 2, 16), (9, 3, 64), (4, 1, 256), (6, 6, 80), (7, 1, 96)]
)
def test_a_layer_computes_what_its_plain_form_computes(
    tmp_path: Path, kernels: Kernels, heads: int, kv_heads: int, head_dim: int
) -> None:
    torch.manual_seed(1)
    path = write_tiny(
        tmp_path / "tiny.gguf", heads=heads, kv_heads=kv_heads, head_dim=head_dim
    ).path
    model = _int8(path, kernels).model
    layout = PageLayout.of(model.shape, dtype="int8", page_tokens=32)
    usual, first = torch.randn(2, 2, kv_heads, head_dim)
    centres = KeyCentres(usual=usual, first=3 * first)
    pools = [PagePool(layout, 12, key_centres=centres) for _ in range(2)]
    layer = model._layers[1]
    steps = (  # a prefill, its next chunk beside a decode, decodes
        [(0, 40, range(4)), (0, 1, range(4, 5))],
        [(40, 30, range(4)), (1, 1, range(4, 5))],
        [(70, 1, range(4)), (2, 1, range(4, 5))],
    )
    for chunks in steps:
        batch = build_batch(
            [
                Chunk(token_ids=[0] * count, first=first, pages=pages, samples=True)
                for first, count, pages in chunks
            ],
            page_tokens=32,
        )
        hidden = torch.randn(len(batch.positions), heads * head_dim)
        step = LayerStep(
            rotation=model._rope.at(batch.positions), slots=batch.slots, spans=batch.spans
        )
        plain, fused = (
            form(hidden.clone(), pool.layers[1], step)
            for form, pool in ((layer._plain, pools[0]), (layer, pools[1]))
        )
        assert (fused - plain).norm() < 2e-3 * (plain - hidden).norm()
    marked = torch.stack([pool.layers[1].key_scales.signbit() for pool in pools])
    assert marked.nonzero()[:, [1, 3]].unique(dim=0).tolist() == [[0, 0], [4, 0]]
    assert torch.equal(marked[0], marked[1])
    # A code at a half may fall to either side: float sums are ordered differently.
    taken = [pool.layers[1].keys.take(torch.arange(4)).int() for pool in pools]
    differences = (taken[0] - taken[1]).abs()
    assert differences.max() <= 1
    assert differences.float().mean() < 0.01


def test_layers_of_one_step_may_turn_their_keys_differently(int8_tiny: Kit) -> None:
    """As those of models that have a rope of their own for sliding windows."""
    model = int8_tiny.model
    layout = PageLayout.of(model.shape, dtype="int8", page_tokens=32)
    pools = [PagePool(layout, 1) for _ in range(2)]
    chunk = Chunk(token_ids=[0] * 20, first=0, pages=[0], samples=True)
    batch = build_batch([chunk], page_tokens=32)
    hidden = torch.randn(20, model.shape.hidden_size)
    layer = model._layers[0]
    for positions in (batch.positions, batch.positions * 7):
        step = LayerStep(rotation=model._rope.at(positions), slots=batch.slots, spans=batch.spans)
        plain, fused = (
            form(hidden.clone(), pool.layers[0], step)
            for form, pool in ((layer._plain, pools[0]), (layer, pools[1]))
        )
        assert (fused - plain).norm() < 2e-3 * (plain - hidden).norm()


def test_a_sequence_answers_the_same_alone_and_in_company(int8_tiny: Kit) -> None:
    prompts = [[(7 * i + n) % 256 for i in range(1 + 17 * n)] for n in range(10)]
    sampling = Sampling(temperature=0, max_tokens=24, logit_bias=NO_END)
    engine = int8_tiny.engine(kv_dtype="int8", step_tokens=48)
    for number, ids in enumerate(prompts):
        engine.add(number, ids, sampling=sampling)
    together = drain(engine)
    for number, ids in enumerate(prompts):
        alone = answer(int8_tiny.engine(kv_dtype="int8", step_tokens=999), ids, sampling)
        assert together[number, 0].text == alone.text


def test_what_served_is_counted(int8_tiny: Kit) -> None:
    calls = int8_tiny.model.attention_calls
    for kv_dtype, name in (("int8", "cpp"), ("fp32", "torch")):
        engine = int8_tiny.engine(kv_dtype=kv_dtype)
        calls.clear()
        answer(engine, [1, 2, 3], Sampling(temperature=0, max_tokens=2, logit_bias=NO_END))
        assert calls == {name: 2 * 2}, "two steps of two layers"


def test_the_real_model_keeps_its_distribution_better_than_in_bf16(
    smollm2: Kit, smollm2_file: GGUFFile, kernels: Kernels
) -> None:
    from test_model import _logits, _pool

    ids = smollm2.tokenizer.encode(LIGHTHOUSE)
    exact = _logits(smollm2.model, _pool(smollm2, "fp32"), ids).log_softmax(-1)
    model = load_model(
        smollm2_file, weights="int8", max_positions=512, progress=lambda _: None, kernels=kernels
    )
    int8 = Kit(model, smollm2.tokenizer)
    results = {}
    for name in ("all loud", "calibrated"):
        if name == "calibrated":
            calibrate(model, smollm2.tokenizer, page_tokens=32)
        pages = PagePool(PageLayout.of(model.shape, dtype="fp32", page_tokens=32), 16)
        rounded = _logits(int8.model, pages, ids).log_softmax(-1)
        kl = (exact.exp() * (exact - rounded)).sum(-1).mean().item()
        kept = (exact.argmax(-1) == rounded.argmax(-1)).float().mean().item()
        print(f"int8 weights, {name}: KL {kl:.2e}, top-1 kept {kept:.4f}")
        results[name] = kl
    assert results["all loud"] < 4e-4
    assert results["calibrated"] < 1.1e-3
    layers = [layer for layer in model.int8_layers if isinstance(layer, Int8Linear)]
    loud = sum(layer.struct.num_loud for layer in layers)
    groups = sum(-(-layer.struct.num_inputs // 32) for layer in layers)
    assert loud <= 0.5 * groups, "16 bits cost time"
