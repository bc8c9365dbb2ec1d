"""All processes of a proxy, this one among them."""

from typing import Protocol

from proxy.processes.gathering import Gathered, P, Process


class Peers(Protocol):
    """What the admin port asks, whichever process was asked."""

    async def ask(self, question: Gathered[P]) -> P:
        """What all have together that answer in time."""
        ...


class Alone:
    """There is one process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def ask(self, question: Gathered[P]) -> P:
        return await question.own(self._process)
