"""Checks of listeners and processes: addresses that clash, open relays, what workers need. Pure."""

from collections.abc import Callable, Iterator
from itertools import combinations

from proxy.settings.address import Address, parse_address
from proxy.settings.config import Config
from proxy.settings.finding import Finding
from proxy.settings.listeners import Tls
from proxy.settings.tree import Path

_STRONG_TOKEN = 16


def check_listeners(config: Config) -> Iterator[Finding]:
    """Each can be listened on, and none opens to strangers what is not theirs."""
    addresses: dict[Path, Address] = {}
    places: list[tuple[Path, str]] = [(("admin", "listen"), config.admin.listen)]
    if isinstance(config.listen, str):
        places.insert(0, (("listen",), config.listen))
    else:
        places[:0] = [(("listen", place), text) for place, text in enumerate(config.listen)]
    if not config.addresses:
        yield Finding(path=("listen",), message="an empty list: nobody could connect")
    for path, text in places:
        try:
            addresses[path] = parse_address(text)
        except ValueError as error:
            yield Finding(path=path, message=f"{error}, got {text!r}")
    for (taker, first), (path, second) in combinations(addresses.items(), 2):
        if first.clashes_with(second):
            yield Finding(path=path, message=f"{second} is already taken by `{taker[0]}`")
    admin = addresses.get(("admin", "listen"))
    if admin is not None and not admin.loopback:
        yield from _exposed(config.admin.token, admin)
    for path, listen in addresses.items():
        if path[0] == "listen" and not listen.loopback and config.tenants is None:
            yield from _open_relays(config, listen)


def check_processes(config: Config, *, has_path: Callable[[str], bool]) -> Iterator[Finding]:
    """Workers have a store to share; certificates are there."""
    if config.workers > 1 and config.store.path is None and not config.store.redis:
        message = "several workers share what they store: set `store.path` or `store.redis`"
        yield Finding(path=("workers",), message=message, target=("store", "path"))
    yield from _certificate(config.tls, ("tls",), has_path)
    yield from _certificate(config.admin.tls, ("admin", "tls"), has_path)


def _exposed(token: str, admin: Address) -> Iterator[Finding]:
    if not token:
        message = f"{admin} can be reached from other machines: `admin.token` must be set"
        yield Finding(path=("admin", "listen"), message=message, target=("admin", "token"))
    elif len(token) < _STRONG_TOKEN:
        message = (
            f"{admin} can be reached from other machines, and less than {_STRONG_TOKEN} characters "
            "can be guessed: `openssl rand -hex 16` makes more"
        )
        yield Finding(path=("admin", "token"), message=message, warning=True)


def _open_relays(config: Config, listen: Address) -> Iterator[Finding]:
    for name, upstream in config.upstreams.items():
        if upstream.credential == "own":
            message = (
                f"anyone who reaches {listen} could spend this key: set `tenants.keys`, "
                "or `tenants: {anonymous: true}` if that is what you want"
            )
            path = ("upstreams", name, "credential")
            yield Finding(path=path, message=message, target=("tenants",))


def _certificate(tls: Tls | None, path: Path, has_path: Callable[[str], bool]) -> Iterator[Finding]:
    if tls is None:
        return
    for field, file in (("cert", tls.cert), ("key", tls.key)):
        if not has_path(file):
            message = f"no such file: {file!r}"
            yield Finding(path=(*path, field), message=message, file=file)
