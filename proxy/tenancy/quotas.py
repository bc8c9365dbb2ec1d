"""What each tenant may still ask for, and what is said of it in OpenAI's headers.

Every request counts. Tokens count where an upstream makes them: before it is asked, a guess must
fit; after it has answered, its own count takes the guess's place. Of a stream that ends without a
count, for its reader has left perhaps, each event is taken for a token. What the cache answers
costs no tokens, nor does an answer that another request was already waiting for, nor one that an
upstream refused.
"""

import math
from collections.abc import Callable, Mapping

from proxy.call import UNLIMITED, Grant, Headers
from proxy.errors import ClientError
from proxy.settings.config import Config
from proxy.settings.listeners import Quota
from proxy.tenancy.meters import Meters
from proxy.tenancy.ratelimit import Reading, correct, take

_BYTES_PER_TOKEN = 4
_LONGEST_GUESS_BYTES = 64 * 2**10
"""A longer body is mostly images or files, whose bytes say nothing of tokens."""
_NO_QUOTA = Quota()
_MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


class Quotas:
    """The limits of one config. The meters outlive it."""

    def __init__(self, config: Config, *, meters: Meters, clock: Callable[[], float]) -> None:
        self._each = config.limits.each_tenant
        self._named = {} if config.tenants is None else config.tenants.limits
        self._meters = meters
        self._clock = clock

    def admit(self, tenant: str) -> Grant:
        """Count a request. Raises ClientError 429."""
        quota = self._named.get(tenant, self._each)
        if quota == _NO_QUOTA:
            return UNLIMITED
        return TenantGrant(tenant, quota, meters=self._meters, clock=self._clock).admitted()


class TenantGrant(Grant):
    """What one request of a tenant with limits may use."""

    def __init__(
        self, tenant: str, quota: Quota, *, meters: Meters, clock: Callable[[], float]
    ) -> None:
        self._tenant = tenant
        self._quota = quota
        self._meters = meters
        self._clock = clock
        self._requests: Reading | None = None
        self._reserved: int | None = None
        """Tokens that were guessed and wait for the upstream's count."""

    def admitted(self) -> "TenantGrant":
        """Count the request. Raises ClientError 429."""
        limit = self._quota.requests_per_minute
        if limit is not None:
            self._requests = self._take("requests", 1, limit)
            if not self._requests.passed:
                raise self._refusal("requests", self._requests)
        return self

    def reserve(self, body: bytes, fields: Mapping[str, object]) -> None:
        limit = self._quota.tokens_per_minute
        if limit is None or self._reserved is not None:
            return
        guess = guess_tokens(body, fields)
        reading = self._take("tokens", guess, limit)
        if not reading.passed:
            raise self._refusal("tokens", reading)
        self._reserved = guess

    def charge(self, tokens: int) -> None:
        limit = self._quota.tokens_per_minute
        if limit is not None:
            self._correct(tokens - (self._reserved or 0), limit)
            self._reserved = 0

    def uncounted(self, body: bytes, num_events: int) -> None:
        tokens = guess_tokens(body, {}) + num_events
        if self._reserved is not None and tokens > self._reserved:
            self.charge(tokens)

    def release(self) -> None:
        limit = self._quota.tokens_per_minute
        if limit is not None and self._reserved:
            self._correct(-self._reserved, limit)
            self._reserved = 0

    def headers(self) -> Headers:
        shown = [] if self._requests is None else _shown("requests", self._requests)
        limit = self._quota.tokens_per_minute
        if limit is not None:
            shown += _shown("tokens", self._take("tokens", 0, limit))
        return tuple(shown)

    def _take(self, what: str, units: int, limit: int) -> Reading:
        name, now = self._name(what), self._clock()
        with self._meters.locked():
            empty_at = self._meters.get(name, now=now)
            reading = take(units, limit=limit, empty_at=empty_at, now=now)
            if reading.passed and units:
                self._meters.put(name, reading.empty_at, now=now)
        return reading

    def _correct(self, units: int, limit: int) -> None:
        name, now = self._name("tokens"), self._clock()
        with self._meters.locked():
            empty_at = self._meters.get(name, now=now)
            corrected = correct(units, limit=limit, empty_at=empty_at, now=now)
            self._meters.put(name, corrected, now=now)

    def _name(self, what: str) -> str:
        return f"{what} {self._tenant}"

    def _refusal(self, what: str, reading: Reading) -> ClientError:
        wait_s = math.ceil(reading.retry_after_s)
        message = (
            f"Rate limit reached for {self._tenant} on {what} per minute: limit {reading.limit}, "
            f"remaining {reading.remaining}. Please try again in {_duration(wait_s)}."
        )
        return ClientError(
            429,
            message,
            kind=what,
            code="rate_limit_exceeded",
            headers=((b"retry-after", b"%d" % wait_s), *self.headers()),
        )


def guess_tokens(body: bytes, fields: Mapping[str, object]) -> int:
    """Tokens of a request and its answer, before they are known: the most that it asks for, and a
    token for four bytes (OpenAI's rule of thumb for English)."""
    asked = [value for name in _MAX_TOKENS if isinstance(value := fields.get(name), int)]
    choices = fields.get("n")
    answers = max(asked, default=0) * (choices if isinstance(choices, int) else 1)
    return max(answers, 0) + min(len(body), _LONGEST_GUESS_BYTES) // _BYTES_PER_TOKEN


def with_limits(headers: Headers, grant: Grant) -> Headers:
    """What is left goes out with the answer. The upstream's own limits are not the client's where
    the proxy has some for it."""
    if grant is UNLIMITED or not (ours := grant.headers()):
        return headers
    others = tuple(header for header in headers if not header[0].startswith(b"x-ratelimit-"))
    return (*others, *ours)


def _shown(what: str, reading: Reading) -> list[tuple[bytes, bytes]]:
    """OpenAI's headers (guide "Rate limits", section "Rate limits in headers")."""
    figures = (
        ("limit", str(reading.limit)),
        ("remaining", str(reading.remaining)),
        ("reset", _duration(reading.reset_s)),
    )
    return [(f"x-ratelimit-{name}-{what}".encode(), text.encode()) for name, text in figures]


def _duration(seconds: float) -> str:
    """`6m0s`, `1.5s`, `120ms`, as OpenAI writes it."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{minutes:.0f}m{rest:g}s" if minutes else f"{rest:g}s"
