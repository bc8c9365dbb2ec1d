"""Whether the request log and the audit log can be where they shall be. Pure."""

from collections.abc import Callable, Iterator

from proxy.settings.config import Config
from proxy.settings.finding import Finding


def check_record(config: Config, *, can_keep: Callable[[str], bool]) -> Iterator[Finding]:
    """Findings on `record` and `admin.audit_log`."""
    record, audit_log = config.record, config.admin.audit_log
    if record is not None and not can_keep(record.path):
        message = f"cannot be written here: {record.path!r}"
        yield Finding(path=("record", "path"), message=message, file=record.path)
    if audit_log is not None and not (audit_log and can_keep(audit_log)):
        message = f"cannot be written here: {audit_log!r}"
        yield Finding(path=("admin", "audit_log"), message=message, file=audit_log or None)
    if record is not None and record.path in (config.access_log, audit_log, config.store.path):
        yield Finding(path=("record", "path"), message="another part of the config has this file")
