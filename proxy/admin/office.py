"""What the handlers of the admin port work with."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from index.store import Store
from proxy.auditing.reports import Verdict
from proxy.counts import Counts
from proxy.health import Health
from proxy.kept import Kept
from proxy.metrics import Metrics
from proxy.reload import ReloadReport
from proxy.settings import config as written
from proxy.transfer.counter import Transfer


class Office(msgspec.Struct, frozen=True, kw_only=True):
    """Wired by `proxy.app`; handlers get it as `office`."""

    config: Callable[[], written.Config]
    """The one in force."""
    store: Store
    health: Health
    metrics: Metrics
    kept: Kept
    clock: Callable[[], float]
    stats: Callable[[], Awaitable[dict[str, Any]]]
    counts: Callable[[], Awaitable[Sequence[Counts]]]
    """Of all processes."""
    reload: Callable[[], Awaitable[ReloadReport]]
    report: Callable[[str, Verdict], Awaitable[bool]]
    """What a user says of the answer under a request id; False where no process knows of it."""
    transfer: Transfer
