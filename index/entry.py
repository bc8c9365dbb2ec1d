"""What is stored: one finished answer with everything needed to judge whether it may be served."""

import msgspec

FORMAT_VERSION = 1
"""Version of the stored form of `Entry`. A record of another version is ignored, never misread."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The state of purges as a request saw it when it arrived.

    `generation` is a random id of the store's purge counters: counters that vanished and began anew
    have another one, so that nothing from before them can be taken for valid.
    `sequence` is the number of purges so far (S in the invalidation contract).
    """

    generation: str
    sequence: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. Times are Unix seconds; token counts are the upstream's own `usage`."""

    key: str
    """Key of the whole request: 64 hex digits."""
    scope: str
    """Key of all but the last user text: 64 hex digits; empty when never matched by meaning."""
    tenant: str
    policy: str
    upstream: str
    """Name of the upstream that really answered (a fallback's name, if it was one)."""
    model: str
    """The model that really answered, as the upstream named it."""
    surface: str
    prompt: str
    """The text that is matched by meaning; empty when `scope` is."""
    canonical: bytes
    """Canonical request, compared with the new one after a match."""
    payload: bytes
    """The recorded answer. Opaque to the index."""
    tags: tuple[str, ...]
    """Sorted, explicit and implicit tags together. An entry is valid only while none was purged."""
    snapshot: Snapshot
    """The purges that the request had seen before it was forwarded."""
    created_at: float
    expires_at: float
    """Fresh until then."""
    keep_until: float
    """May be served stale until then (>= `expires_at`); afterwards it may be swept."""
    input_tokens: int = 0
    output_tokens: int = 0
    latency_ms: float = 0.0
    """What it took to make, for eviction by worth."""
    embedder: str = ""
    """Identity of the embedder that made `embedding`; empty when there is none."""
    embedding: bytes = b""
    """float32, little endian, unit length."""

    def size_bytes(self) -> int:
        """Approximate bytes held in memory, the measure of every byte bound."""
        return (
            len(self.canonical)
            + len(self.payload)
            + len(self.embedding)
            + 2 * len(self.prompt)
            + sum(map(len, self.tags))
            + 56 * len(self.tags)
            + 1024
        )
