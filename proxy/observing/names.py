"""Names that are not ours to choose, as labels of metrics."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

MAX_NAMES = 100
OTHER = "other"


class Names:
    """Clients and upstreams name models as they like, and each name stays in the metrics for good:
    those beyond the first hundred are counted together, as `other`."""

    def __init__(self, file: Path | None = None) -> None:
        """`file`: where several processes, and those that take their places, count one hundred
        together."""
        self._file = file
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        """The name itself, while there is room."""
        if name in self._known:
            return name
        if len(self._known) < MAX_NAMES:
            self._learn(name)
        return name if name in self._known else OTHER

    def _learn(self, name: str) -> None:
        if self._file is None:
            self._known.add(name)
            return
        try:
            self._learn_together(name, self._file)
        except OSError:  # as where there is no descriptor left: then this process counts its own
            self._known.add(name)

    def _learn_together(self, name: str, file: Path) -> None:
        with _locked(file) as descriptor:
            lines = os.pread(descriptor, os.fstat(descriptor).st_size, 0).splitlines()
            self._known.update(msgspec.json.decode(line, type=str) for line in lines)
            if name not in self._known and len(self._known) < MAX_NAMES:
                os.write(descriptor, msgspec.json.encode(name) + b"\n")
                self._known.add(name)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[int]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)  # which unlocks it
