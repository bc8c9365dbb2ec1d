"""Key and scope of a request.

A digest is SHA-256 over length-prefixed parts with a domain and a version, among them a secret of
the store, so that a key shown in a header tells a stranger nothing. The parts:

    domain and version, secret of the store,
    share of the policy and whom it names, policy, folds, what is stripped, fields put back,
    identity of the route's first upstream, surface, query string, counted request headers,
    namespace,
    canonical request (with the model that the upstream is asked for)

The scope has the same parts, but with a marker in the place of the last user text.
"""

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from proxy.call import Call, Caller, Fingerprint
from proxy.request import canonical
from proxy.request.conversation import last_user_text, with_last_user_text
from proxy.request.headers import counted
from proxy.request.normalize import normalize
from proxy.settings.config import Policy, Share

_KEY = b"rejoinder key 3"
_SCOPE = b"rejoinder scope 3"
_NAMES = (
    "secret", "share", "tenant", "credential", "policy", "normalize", "strip", "include",
    "upstream", "surface", "query", "namespace",
)  # fmt: skip
"""Of what `_parts` gives, before the headers."""
_SHOWN_DIGITS = 12


def fingerprint(
    call: Call,
    *,
    secret: bytes,
    upstream: str,
    model: str,
    policy_name: str,
    policy: Policy,
    semantic: bool,
    included: Collection[str] = (),
) -> Fingerprint:
    """`upstream` is the identity of the route's first one, `model` what it is asked for, `included`
    fields that count beside those that the policy puts back.

    `scope` is empty unless `semantic`, and where there is no last user text. The prompt is the
    original text, as the canonical request may be folded. Raises TimeoutError when what the policy
    strips takes too long to find.
    """
    included = {*policy.key.include, *included}
    counts = canonical.effective(call.surface, call.fields, model=model, included=included)
    counts = normalize(call.surface, counts, policy.normalize, stripped=policy.strip)
    text = canonical.encode(counts)
    parts = _parts(
        call,
        secret=secret,
        upstream=upstream,
        policy_name=policy_name,
        policy=policy,
        included=included,
    )
    key = _digest(_framed(_KEY, parts), text)
    prompt = last_user_text(call.surface, call.fields) if semantic else None
    if prompt is None:
        return Fingerprint(key=key, scope="", prompt="", canonical=text)
    around = canonical.encode(with_last_user_text(call.surface, counts, ""))
    scope = _digest(_framed(_SCOPE, parts), around)
    return Fingerprint(key=key, scope=scope, prompt=prompt, canonical=text)


def fingerprints(
    call: Call,
    inputs: Sequence[Any],
    *,
    secret: bytes,
    upstream: str,
    model: str,
    policy_name: str,
    policy: Policy,
    included: Collection[str] = (),
) -> list[Fingerprint]:
    """Of each input of a request for embeddings, as if it had been asked for alone."""
    included = {*policy.key.include, *included}
    counts = canonical.effective(call.surface, call.fields, model=model, included=included)
    parts = _parts(
        call,
        secret=secret,
        upstream=upstream,
        policy_name=policy_name,
        policy=policy,
        included=included,
    )
    framed = _framed(_KEY, parts)
    texts = [canonical.encode({**counts, "input": one}) for one in inputs]
    return [
        Fingerprint(key=_digest(framed, text), scope="", prompt="", canonical=text)
        for text in texts
    ]


def named_parts(
    call: Call,
    *,
    upstream: str,
    policy_name: str,
    policy: Policy,
    included: Collection[str] = (),
) -> dict[str, str]:
    """All that goes into key and scope beside the secret and the canonical request, by name, for
    people. As in `fingerprint`; of a credential's digest only the beginning is shown."""
    parts = _parts(
        call,
        secret=b"",
        upstream=upstream,
        policy_name=policy_name,
        policy=policy,
        included={*policy.key.include, *included},
    )
    known = [part.decode("utf-8", "replace") for part in parts[: len(_NAMES)]]
    headers = parts[len(_NAMES) :]
    named = dict(zip(_NAMES, known, strict=True)) | {
        f"header {name.decode('latin-1')}": value.decode("latin-1")
        for name, value in zip(headers[::2], headers[1::2], strict=True)
    }
    del named["secret"]
    return named | {"credential": named["credential"][:_SHOWN_DIGITS]}


def _parts(
    call: Call,
    *,
    secret: bytes,
    upstream: str,
    policy_name: str,
    policy: Policy,
    included: Collection[str],
) -> list[bytes]:
    """All but the canonical request."""
    parts = [
        secret,
        *_holder(policy.share, call.caller),
        policy_name.encode(),
        ",".join(sorted(policy.normalize)).encode(),
        msgspec.json.encode(sorted(policy.strip)),
        ",".join(sorted(included)).encode(),
        upstream.encode(),
        call.surface.value.encode(),
        call.query,
        call.directives.namespace.encode("utf-8", "surrogatepass"),
    ]
    for header in counted(call.headers):
        parts += header
    return parts


def _holder(share: Share, caller: Caller) -> tuple[bytes, bytes, bytes]:
    """Who may be answered from the entry."""
    if share == "everyone":
        return b"everyone", b"", b""
    if share == "tenant":
        return b"tenant", caller.tenant.encode(), b""
    return b"credential", caller.tenant.encode(), caller.credential_id.encode()


def _framed(domain: bytes, parts: Sequence[bytes]) -> bytes:
    """Parts that cannot be shifted into each other. Their number goes in too, since that of the
    headers varies."""
    framed = [b"%b %d" % (domain, len(parts))]
    for part in parts:
        framed += b":%d:" % len(part), part
    return b"".join(framed)


def _digest(framed: bytes, text: bytes) -> str:
    """64 hex digits."""
    return hashlib.sha256(b"%b:%d:%b" % (framed, len(text), text)).hexdigest()
