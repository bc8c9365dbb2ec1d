"""Who may use the admin port. Pure.

Two dangers are met here. A page in the operator's own browser can send requests to loopback, also
under a name that it made resolve there (DNS rebinding): so `Host` and `Origin` have to name
loopback or a name of the config. And off loopback anyone can come: so a token is needed there.
"""

import hmac
import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from proxy.errors import ClientError
from proxy.settings.listeners import Admin

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Asked by orchestrators, which have no token."""
METRICS = "/metrics"
_PAGE = re.compile(r"/|/dashboard/page/[a-z]+\.[a-z]+")
"""The dashboard's own files, which ask for the token; they hold nothing of the proxy."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """The admin port's rules. Without a `token` it listens on loopback only (see the checks)."""

    token: str
    hosts: frozenset[str]
    open_metrics: bool = False
    """The metrics are told without the token."""

    def __repr__(self) -> str:
        return f"Gate(hosts={sorted(self.hosts)!r})"

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """Raises ClientError: 403 for a foreign name, 401 without the token."""
        if not self._knows(headers.get("host", "")):
            raise _forbidden("Host", headers.get("host", ""))
        origin = headers.get("origin")
        if origin is not None and not self._knows(urlsplit(origin).netloc):
            raise _forbidden("Origin", origin)
        is_open = path in OPEN_PATHS or (self.open_metrics and path == METRICS)
        if self.token and not is_open and not _PAGE.fullmatch(path):
            given = headers.get("authorization", "").removeprefix("Bearer ").strip()
            if not hmac.compare_digest(given.encode(), self.token.encode()):
                text = "The admin port needs its token: Authorization: Bearer TOKEN."
                raise ClientError(401, text, code="invalid_admin_token")

    def _knows(self, netloc: str) -> bool:
        host = urlsplit(f"//{netloc}").hostname or ""
        if host in self.hosts or host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False


def gate_of(admin: Admin) -> Gate:
    """Of a config."""
    hosts = frozenset(admin.hosts)
    return Gate(token=admin.token, hosts=hosts, open_metrics=admin.open_metrics)


def _forbidden(header: str, value: str) -> ClientError:
    text = f"{header} {value!r} is neither loopback nor in admin.hosts."
    return ClientError(403, text, code="forbidden_host")
