"""A request with all decisions about it, before anything is looked up or sent."""

import msgspec

from index.verdict import Rules
from index.volatility.rules import Patterns
from proxy.answer.control import varied_by
from proxy.call import Call, Fingerprint, Headers
from proxy.request.eligibility import Eligibility
from proxy.request.routing import Route


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the rooms behind the decisions work with."""

    call: Call
    route: Route
    eligibility: Eligibility
    fingerprint: Fingerprint | None = None
    """None where the cache has no part in it."""
    tags: tuple[str, ...] = ()
    """Those that the request named and that the policy's rules found; an answer must carry all."""
    subjects: tuple[str, ...] = ()
    """Digests of the users that the request names (`proxy.tenancy.subjects`)."""
    rules: Rules | None = None
    """Of the policy's semantic tier; None without one."""
    patterns: Patterns | None = None
    """By which the policy knows volatile questions; this one is not among them."""

    @property
    def key(self) -> str:
        """Key of the request; empty where the cache has no part in it."""
        return "" if self.fingerprint is None else self.fingerprint.key

    @property
    def serves(self) -> bool:
        """A hit may be served. Not so in shadow mode, where it is only reported."""
        return self.route.mode == "serve"

    @property
    def shares_flights(self) -> bool:
        """May be answered by an identical request's answer, and answer others by its own."""
        eligibility = self.eligibility
        return self.serves and eligibility.read and eligibility.write

    @property
    def hides_outcome(self) -> bool:
        """The answer does not tell what became of its request."""
        policy = self.route.policy
        return policy is not None and policy.hide_outcome

    @property
    def finishes_alone(self) -> bool:
        """The answer is made to its end even when every client has left."""
        policy = self.route.policy
        return self.eligibility.write and policy is not None and policy.on_disconnect == "finish"

    def beside(self) -> "Question":
        """The same question, asked behind the back of whoever asked it."""
        call = msgspec.structs.replace(self.call, timing=self.call.timing.beside())
        return msgspec.structs.replace(self, call=call)

    def barred(self, reason: str) -> "Question":
        """The same question, for which there is no cache."""
        barred = Eligibility(read=False, write=False, semantic=False, reasons=(reason,))
        return msgspec.structs.replace(self, eligibility=barred, fingerprint=None, tags=())

    def varied_by(self, response_headers: Headers) -> Headers | None:
        """What of the request its answer varies by (`proxy.answer.control.varied_by`)."""
        policy = self.route.policy
        return varied_by(
            response_headers,
            self.call.headers,
            own_credential=policy is not None and policy.share == "credential",
        )

    @property
    def max_entry_bytes(self) -> int:
        """A larger answer is passed on and not recorded."""
        policy = self.route.policy
        return policy.max_entry if policy is not None and self.eligibility.write else 0
