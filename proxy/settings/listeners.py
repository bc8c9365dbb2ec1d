"""The part of the config that says how the process meets its clients and its end."""

from typing import Annotated

import msgspec
from msgspec import Meta

from proxy.settings.units import Duration, Secret


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """HTTPS on a listener. A reload reads both files again, so a renewed certificate needs no
    restart."""

    cert: str
    """The certificate and its chain, PEM. A relative path counts from the current folder."""
    key: str
    """Its private key, PEM, without a passphrase."""


class Admin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The admin listener, apart from the data port."""

    listen: str = "127.0.0.1:8081"
    """`HOST:PORT`, `[IPv6]:PORT` or `unix:/path`."""
    token: Secret = msgspec.field(default_factory=Secret)
    """Needed in `Authorization: Bearer`; must be set off loopback."""
    hosts: tuple[str, ...] = ()
    """Names that the admin port may be called by, beside loopback."""
    open_metrics: bool = False
    """`/metrics` is told without the token: whoever scrapes it need not be able to purge."""
    tls: Tls | None = None
    """HTTPS on the admin port."""
    audit_log: str | None = None
    """File in which every purge, reload, erasure and feedback is written down, who, when and with
    what result; a relative path counts from the current folder. Absent: beside the SQLite store,
    with `.audit.jsonl` at its end; without such a store in memory only."""


class Shutdown(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens between SIGTERM and the end. Both times count from the signal. Ctrl-C skips the
    grace time, and a second signal ends everything at once."""

    grace: Duration = msgspec.field(default_factory=lambda: Duration(5))
    """How long new connections are still served while `/readyz` already says 503: the time that
    whoever sends the requests may take to notice."""
    deadline: Duration = msgspec.field(default_factory=lambda: Duration(30))
    """When answers that are still under way are broken off, with an error event in a stream."""

    def __post_init__(self) -> None:
        if self.grace > self.deadline:
            raise ValueError("`grace` is part of `deadline` and cannot be longer")


class Quota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one tenant may ask for, each minute. A pause saves up a minute's worth at most."""

    requests_per_minute: Annotated[int, Meta(ge=1)] | None = None
    """Every request counts, answered from the cache or not. Absent: any number."""
    tokens_per_minute: Annotated[int, Meta(ge=1)] | None = None
    """Tokens that an upstream counted, of prompts and answers; what the cache answers is free.
    Absent: any number."""
