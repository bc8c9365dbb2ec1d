"""The config's part on questions whose answer changes by itself, or is each person's own."""

import msgspec


class Volatile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which questions are volatile or personal, beside those that the rules built in name. They are
    left out by policies with `semantic`, and by others as far as their `never` says so. A request
    that names a TTL is always taken. With the profile `intent` neither the rules built in nor the
    classifier are asked unless the policy says so (`never`, `classifier`): what a question is about
    does not change."""

    patterns: tuple[str, ...] = ()
    """Regular expressions (Python's, letter case aside): a question in which one is found is
    volatile."""
    never: tuple[str, ...] = ()
    """Regular expressions: a question in which one is found is not volatile, whatever else says
    so."""
    examples: tuple[str, ...] = ()
    """Volatile questions of your own: what is near to one by meaning is volatile too. Read on
    policies with `semantic` only, like the two below."""
    stable: tuple[str, ...] = ()
    """Questions whose answers hold: what is nearer to one of them than to an example is kept,
    whatever the classifier says."""
    classifier: bool | None = None
    """Ask the trained classifier too, where the embedder is the one that it was trained on. By
    default it is asked, but not with the profile `intent`."""
