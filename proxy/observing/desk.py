"""Where all that is told of the requests comes together. Outlives every reload."""

import asyncio

from proxy.call import Headers
from proxy.observing.accesslog import AccessLog
from proxy.observing.counting import Counting
from proxy.observing.lines import Lines
from proxy.observing.metrics import Metrics
from proxy.observing.prices import Prices
from proxy.observing.spending import Spending
from proxy.observing.timing import Timing
from proxy.observing.tracing import NotTraced, Traced, make_tracing
from proxy.port.passage import Passage
from proxy.settings.config import Config

_FLUSH_EVERY_S = 1.0

_OFF = "off"
_STDOUT = "stdout"


class Desk:
    """Counts, logs and traces the requests of one process, as the config in force says."""

    def __init__(self, config: Config, *, metrics: Metrics) -> None:
        prices = Prices(config.prices)
        self.spending = Spending(metrics, prices=prices)
        self._metrics = metrics
        self._counting = Counting(metrics, prices=prices)
        self._config = config
        self._tracing: Traced | NotTraced = make_tracing(config.tracing)
        self._log = self._make_log(config)
        self.spending.tell = self._tracing.used

    def begin(self, headers: Headers) -> Timing:
        """A request arrives."""
        return self._tracing.begin(headers)

    def note(self, passage: Passage) -> None:
        """It has ended. See `proxy.port.passage.Watcher`."""
        self._counting.note(passage)
        self._tracing.note(passage)
        if self._log is not None:
            self._log.note(passage)

    def flush(self) -> None:
        """What was counted is in the metrics as this returns."""
        self._counting.flush()

    async def follow(self) -> None:
        """Flush now and then. Runs until cancelled."""
        while True:
            await asyncio.sleep(_FLUSH_EVERY_S)
            self.flush()

    async def adopt(self, config: Config) -> None:
        """Another config is in force. What is pending for the old places still goes there."""
        before, self._config = self._config, config
        self._counting.flush()
        self._counting.prices = self.spending.prices = Prices(config.prices)
        if config.tracing != before.tracing:
            old_tracing, self._tracing = self._tracing, make_tracing(config.tracing)
            self.spending.tell = self._tracing.used
            await old_tracing.close()
        if config.access_log != before.access_log:
            old_log, self._log = self._log, self._make_log(config)
            if old_log is not None:
                await old_log.close()

    async def close(self) -> None:
        """Count, write and send what is pending."""
        self._counting.flush()
        if self._log is not None:
            await self._log.close()
        await self._tracing.close()

    def _make_log(self, config: Config) -> AccessLog | None:
        if config.access_log == _OFF:
            return None
        path = None if config.access_log == _STDOUT else config.access_log
        return AccessLog(Lines(path, lost=self._metrics.access_lines_lost.inc))
