"""What a new config changes in a running proxy. Pure."""

from typing import Literal

import msgspec

from proxy.settings.config import Config
from proxy.settings.listeners import Tls

_FIXED = ("listen", "workers", "store", "embedder")
"""Bound, opened or loaded once, at the start."""


Refusal = Literal["invalid_config", "worker_stuck", "reload_failed"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """From the config in force to the one that was written."""

    config: Config
    """What comes into force: as written, but for what only a restart changes."""
    kept: frozenset[str]
    """Upstreams that are the same; they keep their connections, their state and their engine."""
    ignored: tuple[str, ...]
    """What only a restart changes, in words."""


class ReloadReport(msgspec.Struct, frozen=True, kw_only=True):
    """How the last reload went. Lines as `rejoinder check` prints them."""

    at: float
    """Unix seconds."""
    ok: bool
    """False: the config before it is still in force."""
    problems: tuple[str, ...] = ()
    code: Refusal | None = None
    """Why not. Only `invalid_config` says something against the config: else a process did not
    answer, or failed."""
    warnings: tuple[str, ...] = ()
    """Of the config itself, and what of it takes effect only at the next start."""


def change_to(written: Config, *, now: Config) -> Change:
    """What reloading `written` does to a proxy that runs with `now`."""
    differing = [name for name in _FIXED if getattr(written, name) != getattr(now, name)]
    fixed = {name: getattr(now, name) for name in differing}
    admin, data_tls = written.admin, written.tls
    if admin.listen != now.admin.listen:
        differing.append("admin.listen")
        admin = msgspec.structs.replace(admin, listen=now.admin.listen)
    if _comes_or_goes(admin.tls, now.admin.tls):
        differing.append("admin.tls")
        admin = msgspec.structs.replace(admin, tls=now.admin.tls)
    if _comes_or_goes(data_tls, now.tls):
        differing.append("tls")
        data_tls = now.tls
    return Change(
        config=msgspec.structs.replace(written, admin=admin, tls=data_tls, **fixed),
        kept=frozenset(
            name for name, one in written.upstreams.items() if now.upstreams.get(name) == one
        ),
        ignored=tuple(f"{name}: takes effect at the next start" for name in differing),
    )


def reloaded_by(cause: str) -> str:
    """For the person who looks whether it worked."""
    return f"Config reloaded, by {cause}."


def _comes_or_goes(one: Tls | None, other: Tls | None) -> bool:
    """Other files are a matter of new connections; whether there is TLS at all is not."""
    return (one is None) != (other is None)
