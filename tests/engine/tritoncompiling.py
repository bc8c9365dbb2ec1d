"""Compiles the GPU's kernels as they are launched, for a GPU that need not be here. Run by
`test_triton_compiling` in a process of its own: Triton decides at import what a kernel is.

Prints a line for each kernel: its name, what it multiplies, and whether it decodes.
"""

import sys
from collections import Counter
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from engine.attention import triton_pages
from engine.batch import Chunk, build_batch
from engine.kv.pages import PageLayout
from engine.kv.pool import PagePool
from engine.kv.quant import KeyCentres

TARGET = GPUTarget("cuda", 90, 32)
OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion")
POINTERS = {
    torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.int8: "*i8",
    torch.int32: "*i32", torch.int64: "*i64",
}  # fmt: skip
SCALARS = {int: "i32", float: "fp32"}
ALIGNED = [["tt.divisibility", 16]]


class Compiling:
    """Takes a kernel's place: where that would be launched, this one is compiled."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return self._compile

    def _compile(self, *args: Any, **named: Any) -> None:
        options = {name: named.pop(name) for name in OPTIONS if name in named}
        names = self._kernel.arg_names[: len(args)]
        signature = dict(zip(names, map(_type_of, args), strict=True))
        source = ASTSource(
            self._kernel,
            signature | dict.fromkeys(named, "constexpr"),
            named,
            {(at,): ALIGNED for at, arg in enumerate(args) if isinstance(arg, torch.Tensor)},
        )
        made = compile(source, target=TARGET, options=options)
        assert made.asm["cubin"], "ptxas made nothing"
        words = (self._kernel.__name__, named.get("DOT"), named.get("DECODE"))
        print(*(word for word in words if word is not None))


def _type_of(arg: Any) -> str:
    return POINTERS[arg.dtype] if isinstance(arg, torch.Tensor) else SCALARS[type(arg)]


def main(dtype: str) -> None:
    """Writes a prompt, and attends to it in a prefill and in a decode of two splits."""
    for name in ("attend_pages", "merge_splits", "write_pages"):
        setattr(triton_pages, name, Compiling(getattr(triton_pages, name)))
    layout = PageLayout(
        dtype=dtype, page_tokens=32, num_layers=1, num_kv_heads=8, head_dim=128,
        windows=(None,), for_cpu=False,
    )  # fmt: skip
    zeros = torch.zeros(1, 8, 128)
    centres = KeyCentres(usual=zeros, first=zeros) if layout.has_scales else None
    pages = PagePool(layout, 24, key_centres=centres).layers[0]
    chunk = Chunk(token_ids=[0] * 4, first=600, pages=range(19), samples=True)
    batch = build_batch([chunk], page_tokens=32)
    vectors = torch.zeros(4, 8, 128)
    triton_pages.write_by_triton(pages, vectors, vectors, batch.slots, batch.spans.begins(4))
    attend = triton_pages.TritonAttention(Counter())
    attend(torch.zeros(4, 32, 128), pages, batch.spans)


if __name__ == "__main__":
    main(sys.argv[1])
