"""Whether the request log and the audit log can be where they shall be. Pure, but that it follows
links."""

import os.path
from collections.abc import Callable, Iterator

from proxy.settings.config import Config
from proxy.settings.finding import Finding
from proxy.settings.tree import Path

_NO_FILES = ("off", "stdout", "")
_BESIDE_STORE = ("", "-wal", "-shm", "-journal", ".lock")
_BESIDE_RECORD = ("", ".1", ".lock", ".erasing", ".fresh")


def check_record(config: Config, *, can_keep: Callable[[str], bool]) -> Iterator[Finding]:
    """Findings on `record` and `admin.audit_log`, and on files that two parts of the config have in
    common."""
    record, audit_log = config.record, config.admin.audit_log
    if record is not None and not can_keep(record.path):
        message = f"cannot be written here: {record.path!r}"
        yield Finding(path=("record", "path"), message=message, file=record.path)
    if audit_log is not None and not (audit_log and can_keep(audit_log)):
        message = f"cannot be written here: {audit_log!r}"
        yield Finding(path=("admin", "audit_log"), message=message, file=audit_log or None)
    owners: dict[str, Path] = {}
    for place, path, endings in _files(config):
        files = [os.path.realpath(path + ending) for ending in endings]
        other = next((owners[file] for file in files if file in owners), None)
        if other is not None:
            message = f"`{'.'.join(map(str, other))}` has this file, or one of its files"
            yield Finding(path=place, message=message)
        owners |= dict.fromkeys(files, place)


def _files(config: Config) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """Where it is said, the path, and what stands behind it in the names of its files."""
    if config.store.path is not None:
        yield ("store", "path"), config.store.path, _BESIDE_STORE
    if config.access_log not in _NO_FILES:
        yield ("access_log",), config.access_log, ("",)
    if config.admin.audit_log:
        yield ("admin", "audit_log"), config.admin.audit_log, ("",)
    if config.record is not None:
        yield ("record", "path"), config.record.path, _BESIDE_RECORD
