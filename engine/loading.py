"""Wires an engine together out of a config. The one place that knows all its parts."""

import logging
import os
import time
from functools import partial

import msgspec
import torch

from engine.attention.devices import PageKernels, device_kernels
from engine.config import EngineConfig, WeightsDtype
from engine.device import CPU, chosen_device
from engine.engine import Engine
from engine.errors import ModelUnusable, RequestRefused
from engine.grammars.grammar import Grammars
from engine.kernels.check import load_kernels, load_numba
from engine.kv.centre import key_centres
from engine.kv.fingerprint import layout_fingerprint
from engine.kv.pages import PageLayout
from engine.kv.paging import make_paging
from engine.kv.pins import Pins
from engine.kv.pool import PagePool
from engine.models.calibration import calibrate
from engine.models.families import Progress, load_model
from engine.models.model import Model
from engine.process.protocol import Message, Ready
from engine.profile import Profiler
from engine.sources.opening import open_model
from engine.sources.weights import locate
from engine.text.chat import ChatTemplate
from engine.text.prompts import Prompts
from engine.text.tokenizer import Tokenizer
from engine.warmup import warm_up

log = logging.getLogger("engine.loading")


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a worker serves with."""

    engine: Engine
    profiler: Profiler
    """Makes the engine's steps."""
    prompts: Prompts
    grammars: Grammars
    ready: Ready


def load(config: EngineConfig, progress: Progress) -> Loaded:
    """Raises ModelUnusable. Sets torch's thread count for the whole process."""
    started = time.perf_counter()
    device = chosen_device(config.device)
    torch.set_num_threads(config.threads or len(os.sched_getaffinity(0)))
    opened = open_model(locate(config.model).path)
    tokenizer, template = opened.tokenizer, opened.template
    kernels = load_kernels() if device == CPU else None
    page_kernels = None if device == CPU else device_kernels(config.kv_dtype)
    model = load_model(
        opened.source,
        weights=_weights(config, device),
        max_positions=config.max_context,
        progress=progress,
        kernels=kernels,
        tiled=load_numba() if device == CPU and kernels is None else None,
        device=device,
        page_kernels=page_kernels,
    )
    pool = make_pool(config, model, tokenizer, page_kernels=page_kernels)
    engine = Engine(
        model=model,
        tokenizer=tokenizer,
        pool=pool,
        paging=make_paging(config, pool, fingerprint=_fingerprint(config, model, pool)),
        pins=_pins(config, tokenizer, template),
        max_context=config.max_context,
        max_batch=config.max_batch,
        step_tokens=config.step_tokens,
        long_context=config.long_context,
    )
    if device != CPU:
        warm_up(engine)
    progress(1.0)
    prompts = Prompts(tokenizer, template, max_tokens=engine.max_positions)
    ready = Ready(
        max_context=engine.max_context,
        weights=model.weights,
        page_bytes=pool.layout.page_bytes,
        bytes_per_token=pool.layout.bytes_per_token,
        tool_format=prompts.tool_format,
    )
    log.info(
        "ready after %.1f s: %s weights, %d pages of %d bytes, %d tokens of context",
        time.perf_counter() - started,
        ready.weights,
        engine.pages.num_pages,
        ready.page_bytes,
        ready.max_context,
    )
    return Loaded(
        engine=engine,
        profiler=Profiler(engine, kernels, on_gpu=device != CPU),
        prompts=prompts,
        grammars=Grammars(tokenizer, prompts.tool_format),
        ready=ready,
    )


def _weights(config: EngineConfig, device: torch.device) -> WeightsDtype:
    """A GPU has bf16: int8 in groups is for the CPU's kernels."""
    if device == CPU or config.weights == "fp32":
        return config.weights
    return "bf16"


def make_pool(
    config: EngineConfig,
    model: Model,
    tokenizer: Tokenizer,
    *,
    page_kernels: PageKernels | None = None,
) -> PagePool:
    """As many pages as the memory holds, on the model's device; the model is calibrated, and the
    mean keys are taken off, where something is rounded."""
    layout = PageLayout.of(
        model.shape,
        dtype=config.kv_dtype,
        page_tokens=config.page_tokens,
        for_cpu=page_kernels is None,
    )
    if layout.num_groups > 1 and not layout.for_cpu:
        raise ModelUnusable("kv_cache.dtype int8-hq is for CPUs: on a GPU choose int8 or bf16")
    num_pages = config.kv_memory_bytes // layout.page_bytes
    if num_pages == 0:
        raise ModelUnusable(
            f"kv_cache.memory of {config.kv_memory_bytes} bytes holds no page of "
            f"{layout.page_bytes} bytes"
        )
    writer = None if page_kernels is None else page_kernels.writer
    make = partial(PagePool, layout, num_pages, device=model.device, writer=writer)
    if not layout.has_scales and not model.int8_layers:
        return make()
    calibration = calibrate(model, tokenizer, page_tokens=config.page_tokens)
    centres = key_centres(calibration) if layout.has_scales else None
    return make(key_centres=centres)


def _fingerprint(config: EngineConfig, model: Model, pool: PagePool) -> bytes:
    """Pages that do not outlive the process need no digest of the weights: it has only these."""
    sha256 = "" if config.kv_disk is None else locate(config.model).sha256()
    return layout_fingerprint(pool, model.shape, weights=model.weights, weights_sha256=sha256)


def _pins(config: EngineConfig, tokenizer: Tokenizer, template: ChatTemplate | None) -> Pins:
    """A text is pinned as a system prompt and as the beginning of a completion's prompt."""

    def as_system(text: str) -> list[int]:
        assert template is not None
        return template.encode((Message(role="system", content=text),))

    encoders = [tokenizer.encode]
    if config.kv_pin and template is not None:
        try:
            as_system(config.kv_pin[0])
            encoders.append(as_system)
        except RequestRefused as error:  # some want a user's turn, or know no such role
            log.warning("nothing is pinned as a system prompt: %s", error)
    return Pins(config.kv_pin, encoders=encoders)
