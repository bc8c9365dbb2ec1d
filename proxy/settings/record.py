"""The config's part on the request log."""

import msgspec

from proxy.settings.default import default
from proxy.settings.units import Bytes

LEAST_BYTES = 64 * 2**10


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The request log, which `explain`, `analyze`, `warm` and the view of near misses read: one
    line of JSON for each request to the cached surfaces, never a credential. All workers write to
    one file."""

    path: str
    """The file; a relative path counts from the current folder. The older half has `.1` at its
    end."""
    bodies: bool = False
    """Also the words of requests, and of the stored questions that were near: with whatever secrets
    or personal data they hold. Without them, requests can be counted and not replayed."""
    max: Bytes = default(Bytes(2**30))
    """What both files together may take; the oldest lines go first. An erasure loses no other
    lines: until the next turn the two may take half as much again."""

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("`path` is empty")
        if self.max < LEAST_BYTES:
            raise ValueError("`max` is less than 64KiB")
