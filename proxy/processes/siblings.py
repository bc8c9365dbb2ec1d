"""The other workers, asked through the parent."""

from typing import cast

from proxy.processes.control import Channel, ToAll
from proxy.processes.gathering import Gathered, P


class Siblings:
    """See `proxy.processes.peers.Peers`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def ask(self, question: Gathered[P]) -> P:
        """Raises Unanswered."""
        # The union lists every question of this kind, and the parent answers it in kind.
        return cast("P", await self._channel.ask(cast("ToAll", question)))
