"""What goes to and comes from the admin port, as far as the commands read it."""

import msgspec


class PurgeRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to purge; lists are ORed."""

    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    all: bool = False
    soft: bool = False
    dry_run: bool = False


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """`matched`: live answers covered, None where they were too many to count in time."""

    matched: int | None
    entries: int
    pages: int
    sequence: int


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """What is gone. `scrubbed`: nothing of it is readable any more."""

    entries: int
    pages: int
    lines: int
    requests: int
    sequence: int
    missing: int
    scrubbed: bool


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds by what was done; `trace` is a gzip."""

    upstream: str
    num_steps: int
    steps_s: float
    phases: dict[str, float]
    trace: bytes


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One stored answer, without the answer. Times are Unix seconds."""

    key: str
    tenant: str
    policy: str
    upstream: str
    model: str
    surface: str
    prompt: str
    tags: tuple[str, ...]
    created_at: float
    expires_at: float
    input_tokens: int
    output_tokens: int
    size_bytes: int


class EntryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, newest first; `cursor` continues the listing, None at its end."""

    entries: tuple[Entry, ...]
    cursor: str | None


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a line was refused; `line` counts from 1."""

    line: int
    reason: str


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the lines that were sent. `problems` names the first of the refused.
    `ended`: an export came whole."""

    stored: int
    present: int
    expired: int
    refused: int
    ended: bool
    problems: tuple[Problem, ...]
