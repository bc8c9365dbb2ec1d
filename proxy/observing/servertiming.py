"""The response header `Server-Timing` (W3C Server Timing): where the time went, in milliseconds."""

from proxy.observing.timing import Timing

NAME = b"server-timing"

_PHASES = {"receive": b"receive", "lookup": b"lookup", "embed": b"embed"}


def server_timing(timing: Timing) -> tuple[bytes, bytes]:
    """By phase, until the answer began. One that came twice is told twice."""
    told: list[bytes] = []
    for one in timing.phases:
        took_ms = (one.ended_s - one.began_s) * 1000
        told.append(b"%b;dur=%.3f" % (_PHASES[one.name], took_ms))
    if timing.legs and (upstream_s := timing.upstream_s()) is not None:
        told.append(b"upstream;dur=%.3f" % (upstream_s * 1000))
    return NAME, b", ".join(told)
