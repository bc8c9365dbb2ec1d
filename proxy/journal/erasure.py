"""Whose data is taken out. Pure."""

import msgspec

from proxy.seen import Seen


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's data, or one user's, by the digest of its name (`proxy.subjects`)."""

    tenant: str = ""
    subject: str = ""

    def covers(self, seen: Seen) -> bool:
        """A request of theirs."""
        if self.tenant:
            return seen.tenant == self.tenant
        return bool(self.subject) and self.subject in seen.subjects
