"""The border for work that several replicas would do at once: one does it, the others wait."""

from typing import Protocol


class Lease(Protocol):
    """The right to make an answer, until it is released or its time is over."""

    async def release(self) -> None:
        """Let others go on. A no-op when the lease has expired, also when another has it now.

        Raises StoreFault; the lease then ends by its time.
        """
        ...


class Leases(Protocol):
    """Who may make what. A lease only saves work: nothing is wrong when two hold one."""

    async def acquire(self, key: str, *, ttl_s: float, looked: bool = False) -> Lease | None:
        """A lease that expires after `ttl_s`. Raises StoreFault.

        None while another has it, or when one was released a moment ago, unless the caller has
        `looked` for what its holder made: it may have come between the first look and this call.
        """
        ...

    async def wait(self, key: str, *, timeout_s: float) -> bool:
        """Wait until nobody has it; False when somebody still does after `timeout_s`."""
        ...


class Granted:
    """A lease that nobody else knows of."""

    async def release(self) -> None:
        """Nothing is held."""


class NoLeases:
    """Nobody else could do the same work: every lease is granted."""

    async def acquire(self, key: str, *, ttl_s: float, looked: bool = False) -> Lease | None:
        """See `Leases.acquire`."""
        return Granted()

    async def wait(self, key: str, *, timeout_s: float) -> bool:
        """See `Leases.wait`."""
        return True
