"""How many retries there may be, beside all the requests."""


class RetryBudget:
    """Retries may be a share of all requests, so that they cannot multiply an overload."""

    __slots__ = ("_saved", "_share")

    FIRST_RETRIES = 10
    """There before any request was made."""
    MAX_RETRIES = 100
    """Saved up at most."""

    def __init__(self, *, share: float = 0.2) -> None:
        """`share` of the requests, 0 to 1. With 0 there are no retries at all."""
        self._share = round(share * _UNIT)
        self._saved = _UNIT * self.FIRST_RETRIES if share else 0

    def earn(self) -> None:
        """A request was made."""
        self._saved = min(_UNIT * self.MAX_RETRIES, self._saved + self._share)

    def spend(self) -> bool:
        """Take one retry, if there is one."""
        if self._saved < _UNIT:
            return False
        self._saved -= _UNIT
        return True


_UNIT = 10_000
"""One retry, in whole numbers: shares of it add up exactly."""
