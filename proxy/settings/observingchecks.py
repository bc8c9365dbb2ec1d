"""Whether what is told can go where it shall go. Pure."""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from proxy.settings.config import Config
from proxy.settings.finding import Finding, check_header

_NO_FILES = ("off", "stdout")


def check_observing(config: Config, *, can_keep: Callable[[str], bool]) -> Iterator[Finding]:
    """Findings on `access_log` and `tracing`."""
    path = config.access_log
    if not path:
        yield Finding(path=("access_log",), message="expected `off`, `stdout` or a path")
    elif path not in _NO_FILES and not can_keep(path):
        message = f"cannot be written here: {path!r}"
        yield Finding(path=("access_log",), message=message, file=path)
    if config.tracing is None:
        return
    if not _is_base_url(config.tracing.endpoint):
        message = "expected the URL of a collector, such as http://localhost:4318"
        yield Finding(path=("tracing", "endpoint"), message=message)
    for name, value in config.tracing.headers.items():
        yield from check_header(name, value, ("tracing", "headers", name))


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return has_host and parts.scheme in ("http", "https") and not (parts.query or parts.fragment)
