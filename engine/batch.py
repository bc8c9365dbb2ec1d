"""One step's work as tensors."""

from collections.abc import Sequence as Many

import msgspec
import torch

from engine.attention.spans import AttentionSpans


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive tokens of one sequence that a step computes.

    `token_ids` are the sequence's tokens from position `first` on; `pages` its page table, which
    covers them all, but for the `num_lost` tokens before them that are in no page any more.
    `samples`: the sequence's next token is wanted.
    """

    token_ids: Many[int]
    first: int
    pages: Many[int]
    samples: bool
    num_lost: int = 0


class StepBatch(msgspec.Struct, frozen=True, kw_only=True):
    """All chunks of a step, flat. int64 throughout."""

    token_ids: torch.Tensor  # [num_tokens]
    positions: torch.Tensor  # [num_tokens]
    slots: torch.Tensor  # [num_tokens], page * page_tokens + place in the page
    sampled_rows: torch.Tensor  # [num_sampled], rows whose next token is wanted
    spans: AttentionSpans

    def parts(self) -> tuple[torch.Tensor, ...]:
        spans = self.spans
        lines = (self.token_ids, self.positions, self.slots, self.sampled_rows)
        return (*lines, spans.page_tables, spans.kv_lens, spans.query_starts)

    def on(self, device: torch.device) -> "StepBatch":
        """The same batch there, in one copy."""
        if self.token_ids.device == device:
            return self
        parts = self.parts()
        flat = torch.cat([part.reshape(-1) for part in parts])
        pinned = flat.pin_memory() if device.type == "cuda" else flat
        moved = pinned.to(device, non_blocking=True)
        token_ids, positions, slots, rows, tables, kv_lens, starts = torch.split(
            moved, [part.numel() for part in parts]
        )
        return StepBatch(
            token_ids=token_ids,
            positions=positions,
            slots=slots,
            sampled_rows=rows,
            spans=AttentionSpans(
                page_tables=tables.view(self.spans.page_tables.shape),
                kv_lens=kv_lens,
                query_starts=starts,
            ),
        )


def build_batch(chunks: Many[Chunk], *, page_tokens: int) -> StepBatch:
    """`chunks` is not empty, nor is any of them."""
    positions = [range(chunk.first, chunk.first + len(chunk.token_ids)) for chunk in chunks]
    slots = [
        chunk.pages[place // page_tokens] * page_tokens + place % page_tokens
        for chunk, span in zip(chunks, positions, strict=True)
        for place in range(span.start - chunk.num_lost, span.stop - chunk.num_lost)
    ]
    ends = torch.tensor([len(span) for span in positions]).cumsum(0)
    return StepBatch(
        token_ids=torch.tensor([token for chunk in chunks for token in chunk.token_ids]),
        positions=torch.tensor([position for span in positions for position in span]),
        slots=torch.tensor(slots),
        sampled_rows=ends[torch.tensor([chunk.samples for chunk in chunks])] - 1,
        spans=AttentionSpans(
            page_tables=_page_tables(chunks),
            kv_lens=torch.tensor(
                [span.stop - chunk.num_lost for chunk, span in zip(chunks, positions, strict=True)]
            ),
            query_starts=torch.cat((torch.zeros(1, dtype=torch.int64), ends)),
        ),
    )


def _page_tables(chunks: Many[Chunk]) -> torch.Tensor:
    longest = max(len(chunk.pages) for chunk in chunks)
    return torch.tensor([[*chunk.pages, *[0] * (longest - len(chunk.pages))] for chunk in chunks])
