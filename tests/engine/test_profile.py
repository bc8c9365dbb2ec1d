"""Profiles of a running engine, and through its process."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest
from enginekit import GREEDY, Kit, Tiny, drain

from engine.config import EngineConfig
from engine.kernels.bindings import Kernels
from engine.phases import ATTENTION, MODEL, SAMPLING, SCHEDULING
from engine.process.client import EngineClient
from engine.process.protocol import Finished, Profile, Profiled, Request
from engine.process.relay import Relay
from engine.profile import Profiler
from engine.sampling import Sampling

PHASES = {"attention", "linear", "sampling", "scheduling", "other"}
PROMPT = list(range(40, 100))


def _names(profiled: Profiled) -> set[str]:
    return {
        event.get("name") for event in json.loads(gzip.decompress(profiled.trace))["traceEvents"]
    }


def _run(profiler: Profiler, engine) -> list[Profiled]:  # type: ignore[no-untyped-def]  # any engine
    profiles = []
    while engine.busy:
        profiles += profiler.step()[1]
    return profiles


def test_a_profile_covers_the_steps_that_were_asked_for(tiny: Kit) -> None:
    engine = tiny.engine()
    profiler = Profiler(engine, None, on_gpu=False)
    profiler.ask(Profile(num_steps=5, longest_s=60))
    engine.add(1, PROMPT, sampling=GREEDY)
    (profiled,) = _run(profiler, engine)
    assert profiled.num_steps == 5
    assert set(profiled.phases) == PHASES
    assert all(seconds > 0 for seconds in profiled.phases.values())
    assert sum(profiled.phases.values()) == pytest.approx(profiled.steps_s, rel=1e-6)
    assert {SCHEDULING, MODEL, SAMPLING, ATTENTION, "aten::linear"} <= _names(profiled)
    assert engine.num_steps > 5, "the others went unwatched"


def test_watched_answers_are_the_same(tiny: Kit) -> None:
    engine = tiny.engine()
    engine.add(1, PROMPT, sampling=GREEDY)
    expected = drain(engine)[1, 0].num_tokens
    profiler = Profiler(engine, None, on_gpu=False)
    profiler.ask(Profile(num_steps=3, longest_s=60))
    engine.add(1, PROMPT, sampling=GREEDY)
    finished = []
    while engine.busy:
        finished += [event for event in profiler.step()[0] if isinstance(event, Finished)]
    assert finished[0].completion_tokens == expected


def test_one_profile_waits_for_the_one_before(tiny: Kit) -> None:
    engine = tiny.engine()
    profiler = Profiler(engine, None, on_gpu=False)
    for num_steps in (2, 3):
        profiler.ask(Profile(num_steps=num_steps, longest_s=60))
    engine.add(1, PROMPT, sampling=GREEDY)
    assert [profiled.num_steps for profiled in _run(profiler, engine)] == [2, 3]


def test_an_idle_engine_is_watched_no_longer_than_asked(tiny: Kit) -> None:
    profiler = Profiler(tiny.engine(), None, on_gpu=False)
    assert profiler.patience_s is None
    profiler.ask(Profile(num_steps=2, longest_s=0.0))
    assert profiler.patience_s == 0.0
    (profiled,) = profiler.step()[1]
    assert (profiled.num_steps, profiled.steps_s) == (0, 0.0)
    assert profiler.patience_s is None


def test_kernels_count_what_they_attend_and_multiply(kernels: Kernels, tiny_files: Tiny) -> None:
    from engine.models.families import load_model
    from engine.sources.gguf import GGUFFile
    from engine.text.tokenizer import tokenizer_from_gguf

    file = GGUFFile(tiny_files.path)
    model = load_model(
        file, weights="int8", max_positions=512, progress=lambda _: None, kernels=kernels
    )
    engine = Kit(model, tokenizer_from_gguf(file)).engine(kv_dtype="int8")
    profiler = Profiler(engine, kernels, on_gpu=False)
    profiler.ask(Profile(num_steps=4, longest_s=60))
    engine.add(1, PROMPT, sampling=GREEDY)
    (profiled,) = _run(profiler, engine)
    assert model.attention_calls["cpp"] > 0
    assert profiled.phases["attention"] > 0
    assert profiled.phases["linear"] > 0
    assert "aten::linear" not in _names(profiled), "fused layers hide what they do"


@pytest.mark.parametrize("shared", [False, True])
async def test_a_process_sends_the_trace_of_what_it_does(
    tiny_files: Tiny, tmp_path: Path, shared: bool
) -> None:
    config = EngineConfig(
        model=str(tiny_files.path), weights="fp32", kv_dtype="fp32", device="cpu", threads=1,
        kv_memory_bytes=2**22, kv_swap_bytes=0,
    )  # fmt: skip
    relay = Relay(config, tmp_path / "relay") if shared else None
    if relay is not None:
        await relay.start()
    client = EngineClient(config, shared=str(tmp_path / "relay") if shared else None)
    await client.start()
    try:
        await client.ready(timeout_s=120)
        asking = asyncio.create_task(client.profile(Profile(num_steps=4, longest_s=60)))
        await asyncio.sleep(0)
        sampling = Sampling(temperature=0.0, max_tokens=12, ignore_eos=True)
        request = Request(prompt_ids=tuple(PROMPT), sampling=sampling)
        async with client.generate(request) as generation:
            await generation.started()
            async for _ in generation:
                pass
        profiled = await asking
        assert (profiled.num_steps, set(profiled.phases)) == (4, PHASES)
        assert MODEL in _names(profiled)
    finally:
        await client.close()
        if relay is not None:
            await relay.close()
