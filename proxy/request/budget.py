"""How long the regular expressions of a policy may work on one request.

Their texts come from clients, and some patterns take exponential time on some texts.
"""

import time

SECONDS = 0.1
"""Of one thread's processor time, for all patterns and texts of one purpose together."""


class Budget:
    """Begins to run when it is made; for one request and one purpose."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._until = time.thread_time() + seconds

    def left_s(self) -> float:
        """What is left, more than nothing. Raises TimeoutError, as `regex` does, once it is
        spent."""
        left = self._until - time.thread_time()
        if left <= 0:
            raise TimeoutError("the patterns of a policy took too long on one request")
        return left
