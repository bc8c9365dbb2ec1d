"""What attends to pages, and writes them, on a device that is not the CPU."""

from collections import Counter
from collections.abc import Callable

import msgspec

from engine.attention.spans import Attend
from engine.config import KVDtype
from engine.errors import ModelUnusable
from engine.kv.pool import PageWriter

_SERVED = ("int8", "bf16", "fp32")


class PageKernels(msgspec.Struct, frozen=True, kw_only=True):
    """`attention` makes an `Attend` that counts its calls in the counter."""

    attention: Callable[[Counter[str]], Attend]
    writer: PageWriter


def device_kernels(dtype: KVDtype) -> PageKernels:
    """For pages of this type. Raises ModelUnusable."""
    if dtype not in _SERVED:
        raise ModelUnusable(
            f"kv_cache.dtype {dtype} is for the CPU: with `device: cuda` choose one of "
            f"{', '.join(_SERVED)}"
        )
    return triton_kernels()


def triton_kernels() -> PageKernels:
    """Of a GPU, and of no other: nothing takes their place in silence. Raises ModelUnusable."""
    try:
        from engine.attention.triton_pages import TritonAttention, write_by_triton
    except ImportError as error:
        raise ModelUnusable(
            f"`device: cuda` needs Triton, which cannot be imported ({error}): install "
            "rejoinder[gpu]"
        ) from error
    return PageKernels(attention=TritonAttention, writer=write_by_triton)
