"""A file of lines from its end."""

import os
from collections.abc import Iterator
from pathlib import Path

_BLOCK_BYTES = 2**16


def lines_backwards(path: Path) -> Iterator[bytes]:
    """The last one first, without their ends; the first may be empty. None where there is no such
    file. What is appended meanwhile is left out."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        rest, end = b"", file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(end - _BLOCK_BYTES, 0)
            rest, *lines = (os.pread(file.fileno(), end - start, start) + rest).split(b"\n")
            yield from reversed(lines)
            end = start
        yield rest
