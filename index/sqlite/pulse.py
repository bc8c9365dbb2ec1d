"""Whether any process has committed since: one look into shared memory instead of system calls.

Beside the file lies `<name>.pulse`, 16 bytes that every process maps. Who commits writes a token
there that no one else ever writes, after the commit and before the commit is acknowledged. So a
reader that sees the token which it saw when it last read the file has missed nothing that was
acknowledged: two writers may overwrite each other's tokens, but never with the one of before.
"""

import mmap
import os
import secrets
from pathlib import Path

TOKEN_BYTES = 16


class Pulse:
    """One process's view of the token. `beat` is for the writer's thread, `token` for any."""

    def __init__(self, path: Path) -> None:
        """`path` is the store's file. Raises OSError."""
        descriptor = os.open(f"{path}.pulse", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < TOKEN_BYTES:
                os.ftruncate(descriptor, TOKEN_BYTES)
            self._memory = mmap.mmap(descriptor, TOKEN_BYTES)
        finally:
            os.close(descriptor)
        self._prefix = secrets.token_bytes(8)
        self._beats = 0

    def token(self) -> bytes:
        """The token of now. Costs about as much as a dictionary lookup."""
        return self._memory[:]

    def beat(self) -> None:
        """Tell all processes that something was committed."""
        self._beats += 1
        self._memory[:] = self._prefix + self._beats.to_bytes(8, "little")

    def close(self) -> None:
        """Let go of the mapping. Idempotent."""
        self._memory.close()
