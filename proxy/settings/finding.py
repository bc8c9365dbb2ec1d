"""What is found wrong with a config as a whole; what every name and header in it must be."""

import re
from collections.abc import Iterator

import msgspec

from proxy.settings.tree import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`target` is the place that was looked for in vain: where it is there but could not be read,
    the finding is a mere consequence. `file`: what the message says of a file is said of this one,
    which may be relative. A `warning` does not keep the config from working."""

    path: Path
    message: str
    target: Path | None = None
    file: str | None = None
    warning: bool = False


def check_name(name: str, path: Path) -> Iterator[Finding]:
    """Names of upstreams and policies stand in headers and metrics."""
    if not _NAME.fullmatch(name):
        message = "a name is made of letters, digits, dot, dash and underscore"
        yield Finding(path=path, message=message)


def check_header(name: str, value: str, path: Path) -> Iterator[Finding]:
    """RFC 9110, sections 5.1 and 5.5: a name is a token, a value holds no control characters."""
    if not _HEADER_NAME.fullmatch(name):
        yield Finding(path=path, message="not a name that a header can have")
    if not value.isprintable() or not value.isascii():
        yield Finding(path=path, message="the value of a header is printable ASCII")
