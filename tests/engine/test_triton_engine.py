"""Whole engines on the GPU's path: its loader, its page layout, its kernels. Without a GPU,
Triton's interpreter runs them on the CPU."""

import pytest
import torch
from enginekit import Kit, Tiny, answer, drain
from tritonkit import DEVICE

from engine.attention.devices import device_kernels, triton_kernels
from engine.batch import Chunk, build_batch
from engine.config import EngineConfig
from engine.device import CPU, chosen_device
from engine.engine import Engine
from engine.errors import ModelUnusable
from engine.kv.fingerprint import layout_fingerprint
from engine.kv.pages import PageLayout
from engine.kv.paging import make_paging
from engine.kv.pins import Pins
from engine.kv.pool import PagePool
from engine.models.families import load_model
from engine.models.graphs import filled_up, is_decode
from engine.models.model import Model
from engine.sampling import Sampling
from engine.sources.gguf import GGUFFile
from engine.warmup import warm_up

GREEDY = Sampling(temperature=0.0, max_tokens=4)
PROMPTS = ([1, 2, 3], [7] * 20 + [9], [40, 50, 60, 70])


@pytest.fixture(scope="module")
def model(tiny_files: Tiny) -> Model:
    """As `device: cuda` builds it."""
    return load_model(
        GGUFFile(tiny_files.path), weights="fp32", max_positions=512,
        progress=lambda _: None, device=DEVICE, page_kernels=triton_kernels(),
    )  # fmt: skip


def _pool(model: Model, dtype: str) -> PagePool:
    layout = PageLayout.of(model.shape, dtype=dtype, page_tokens=16, for_cpu=False)
    return PagePool(layout, 24, device=DEVICE, writer=triton_kernels().writer)


def _engine(model: Model, pool: PagePool, tiny: Kit) -> Engine:
    config = EngineConfig(model="", page_tokens=16)
    paging = make_paging(
        config,
        pool,
        fingerprint=layout_fingerprint(pool, model.shape, weights="fp32", weights_sha256=""),
    )
    return Engine(
        model=model, tokenizer=tiny.tokenizer, pool=pool, paging=paging,
        pins=Pins((), encoders=()), max_context=512,
        max_batch=8, step_tokens=16,
    )  # fmt: skip


def test_greedy_tokens_are_those_of_the_reference_and_triton_served_them_all(
    model: Model, tiny: Kit
) -> None:
    model.attention_calls.clear()
    engine = _engine(model, _pool(model, "fp32"), tiny)
    for number, prompt in enumerate(PROMPTS):
        engine.add(number, list(prompt), sampling=GREEDY)
    answers = drain(engine)
    for number, prompt in enumerate(PROMPTS):
        expected = answer(tiny.engine(), list(prompt), GREEDY)
        assert answers[number, 0].text == expected.text, prompt
        assert answers[number, 0].reason == expected.reason
    assert set(model.attention_calls) == {"triton"}
    assert model.attention_calls["triton"] > 0


def test_warming_up_runs_prefill_and_decode_and_leaves_nothing(model: Model, tiny: Kit) -> None:
    model.attention_calls.clear()
    engine = _engine(model, _pool(model, "int8"), tiny)
    warm_up(engine, (2, 20, 10_000))
    assert engine.num_steps >= 4
    assert set(model.attention_calls) == {"triton"}
    now = engine.occupancy()
    assert (now.running, now.waiting, now.cached_pages) == (0, 0, 0)
    assert now.free_pages == now.num_pages


def test_int8_pages_give_the_logits_that_torch_gives(model: Model, tiny: Kit) -> None:
    prompt = list(range(35))
    chunk = Chunk(token_ids=prompt, first=0, pages=(3, 1, 2), samples=True)
    batch = build_batch([chunk], page_tokens=16)
    by_torch = PagePool(_pool(model, "int8").layout, 24)
    expected = tiny.model.forward(batch, by_torch)
    logits = model.forward(batch, _pool(model, "int8"))
    assert (logits.cpu() - expected).abs().max() < 0.02 * expected.abs().max()


def test_a_decode_that_is_filled_up_for_a_graph_gives_the_same_logits(model: Model) -> None:
    pool = _pool(model, "fp32")
    tables = ((0, 1), (2,), (3, 4))
    lengths = (17, 1, 20)
    prefills = [
        Chunk(token_ids=range(length), first=0, pages=table, samples=True)
        for length, table in zip(lengths, tables, strict=True)
    ]
    model.forward(build_batch(prefills, page_tokens=16), pool)
    decodes = [
        Chunk(token_ids=[5], first=length, pages=table, samples=True)
        for length, table in zip(lengths, tables, strict=True)
    ]
    batch = build_batch(decodes, page_tokens=16).on(DEVICE)
    assert is_decode(batch)
    expected = model.compute(batch, pool)
    untouched = pool.storage[5:].clone()
    filled = filled_up(batch, num_seqs=4, num_pages=4)
    logits = model.compute(filled, pool)
    assert (logits[:3] - expected).abs().max() < 1e-4
    assert torch.isfinite(logits).all()
    assert torch.equal(pool.storage[5:], untouched)


def test_a_chunk_of_a_prompt_is_no_decode() -> None:
    chunks = [Chunk(token_ids=[1, 2], first=0, pages=[0], samples=True)]
    assert not is_decode(build_batch(chunks, page_tokens=16))


def test_a_batch_that_is_moved_in_one_copy_is_the_same() -> None:
    chunks = [
        Chunk(token_ids=[1, 2, 3], first=30, pages=[4, 2, 7], samples=False),
        Chunk(token_ids=[9], first=3, pages=[1], samples=True),
    ]
    batch = build_batch(chunks, page_tokens=16)
    for ours, moved in zip(batch.parts(), batch.on(torch.device("meta")).parts(), strict=True):
        assert (moved.shape, moved.dtype, moved.device.type) == (ours.shape, ours.dtype, "meta")


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is said where no GPU is")
def test_cuda_without_a_device_is_refused_and_auto_takes_the_cpu() -> None:
    with pytest.raises(ModelUnusable, match="no CUDA device"):
        chosen_device("cuda")
    assert chosen_device("auto") == chosen_device("cpu") == CPU


def test_pages_that_only_the_cpu_has_kernels_for_are_refused() -> None:
    with pytest.raises(ModelUnusable, match="int8-hq is for the CPU"):
        device_kernels("int8-hq")
