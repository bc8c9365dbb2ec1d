"""Who asks: the tenant of a request, from its credential."""

import hashlib

import msgspec

from proxy.call import Caller, Headers
from proxy.errors import ClientError
from proxy.settings import config as written

ANONYMOUS = "anonymous"
"""The tenant of requests without a key, where those are served."""

CREDENTIAL_HEADERS = (b"authorization", b"api-key", b"x-api-key")
"""Where clients put their key, in the order in which they count. None of them goes upstream as an
ordinary header."""

_DOMAIN = b"rejoinder credential 1\0"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and with which credential the request may go upstream.

    `credential` is an `Authorization` value for upstreams with `credential: passthrough`. It is
    None where the client sent none, and always where the config has `tenants`: the key is then a
    key of this proxy, which no upstream may see.
    """

    caller: Caller
    credential: bytes | None

    def __repr__(self) -> str:
        return f"Identity(caller={self.caller!r})"


class Tenants:
    """The keys of one config. Without `tenants` in it, each credential is a tenant of its own."""

    def __init__(self, config: written.Tenants | None) -> None:
        self._anonymous = config is None or config.anonymous
        self._by_digest: dict[str, str] | None = None
        if config is not None:
            self._by_digest = {_digest(k.encode()): name for k, name in config.keys.items()}

    def identify(self, headers: Headers) -> Identity:
        """The first of `CREDENTIAL_HEADERS` that is there counts; later ones are ignored.

        Raises `ClientError` 401 `invalid_api_key`.
        """
        authorization = _authorization(headers)
        digest = "" if authorization is None else _digest(_key_of(authorization))
        if self._by_digest is None:
            tenant = f"credential:{digest[:32]}" if digest else ANONYMOUS
            caller = Caller(tenant=tenant, credential_id=digest)
            return Identity(caller=caller, credential=authorization)
        tenant = self._known(digest)
        return Identity(caller=Caller(tenant=tenant, credential_id=digest), credential=None)

    def _known(self, digest: str) -> str:
        # A look-up by digest gives no key away by its timing: nobody can aim at a digest, nor at
        # the hash that the dict compares first, which is seeded anew in each process.
        assert self._by_digest is not None
        tenant = self._by_digest.get(digest)
        if tenant is not None:
            return tenant
        if self._anonymous:
            return ANONYMOUS
        message = "Incorrect API key provided." if digest else "You didn't provide an API key."
        raise ClientError(401, message, code="invalid_api_key")


def _authorization(headers: Headers) -> bytes | None:
    """The credential as an `Authorization` value. Of a header that is there twice, the first."""
    others: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in CREDENTIAL_HEADERS:
            others.setdefault(name, value.strip())
    if not others:
        return None
    first = others.pop(b"authorization", b"")
    if first and first.lower() != b"bearer":
        return first
    key = others.get(b"api-key") or others.get(b"x-api-key")
    return b"Bearer " + key if key else None


def _key_of(authorization: bytes) -> bytes:
    """The key of a Bearer value (the scheme in any case, RFC 9110 section 11.1), else all of it."""
    scheme, _, key = authorization.partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else authorization


def _digest(key: bytes) -> str:
    return hashlib.sha256(_DOMAIN + key).hexdigest()
