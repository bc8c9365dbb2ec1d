"""The response header `Server-Timing` (W3C Server Timing): where the time went, in milliseconds."""

from proxy.observing.timing import Timing

NAME = b"server-timing"


def server_timing(timing: Timing) -> tuple[bytes, bytes]:
    """By phase, until the answer began."""
    spent = timing.spent_s().items()
    return NAME, b", ".join([b"%b;dur=%.3f" % (name.encode(), s * 1000) for name, s in spent])
