"""How a command finds the running server: options that all such commands share."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Connection:
    """Where the admin port of a running server is."""

    admin: Annotated[str, Parameter(env_var="REJOINDER_ADMIN")] = "http://127.0.0.1:8081"
    """Address of the admin port: a URL, or unix:/path."""
    token: Annotated[str, Parameter(env_var="REJOINDER_ADMIN_TOKEN", show_default=False)] = ""
    """The admin token, where the server has one."""

    def __repr__(self) -> str:
        return f"Connection(admin={self.admin!r})"


LOCAL = Connection()
"""A server on this machine with the default ports."""
