"""Whose data is taken out. Pure."""

from collections.abc import Collection
from typing import TypeVar

import msgspec

from proxy.observing.seen import Seen

S = TypeVar("S", bound=Seen)


class Erasure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tenant's data, or one user's, by the digest of its name (`proxy.tenancy.subjects`)."""

    tenant: str = ""
    subject: str = ""
    at: float = 0.0
    """When it was asked for; Unix seconds."""
    keys: frozenset[str] = frozenset()
    """Of the answers that go: their questions may stand beside other people's requests."""

    def covers(self, seen: Seen) -> bool:
        """A request of theirs."""
        if self.tenant:
            return seen.tenant == self.tenant
        return bool(self.subject) and self.subject in seen.subjects


def without_words(seen: S, gone: Collection[str]) -> S:
    """Without the questions of the answers under `gone`; the same object where it has none."""
    if not any(one.prompt and one.key in gone for one in seen.near):
        return seen
    near = tuple(
        msgspec.structs.replace(one, prompt="") if one.key in gone else one for one in seen.near
    )
    return msgspec.structs.replace(seen, near=near)
