"""What the handlers of the admin port work with."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from index.store import Store
from proxy.admin.deeds import Deeds
from proxy.dashboard.history import History
from proxy.explaining.asking import Asking
from proxy.health import Health
from proxy.journal.records import Records
from proxy.kept import Kept
from proxy.observing.metrics import Metrics
from proxy.processes.peers import Peers
from proxy.processes.reload import ReloadReport
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
    peers: Callable[[], Peers]
    asking: Callable[[], Asking]
    records: Records
    deeds: Deeds
    reload: Callable[[], Awaitable[ReloadReport]]
    transfer: Transfer
    history: History
    """What was counted in the last day."""
