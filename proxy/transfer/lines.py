"""Lines out of a body that comes in pieces."""

from collections.abc import AsyncIterator

from proxy.errors import ClientError


async def lines_of(pieces: AsyncIterator[bytes], *, max_bytes: int) -> AsyncIterator[bytes]:
    """Each line without its end, empty ones too; the last may lack it. Raises ClientError 413 for
    a longer one."""
    parts: list[bytes] = []
    num_bytes = 0
    num_lines = 0
    async for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for end in whole:
            num_lines += 1
            yield b"".join((*parts, end))
            parts, num_bytes = [], 0
        parts.append(rest)
        num_bytes += len(rest)
        if num_bytes > max_bytes:
            raise ClientError(413, f"Line {num_lines + 1} is longer than {max_bytes} bytes.")
    if num_bytes:
        yield b"".join(parts)
