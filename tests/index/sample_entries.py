"""Entries for the tests of stores."""

import hashlib

from index.entry import Entry, Snapshot

NOW = 1_800_000_000.0


def key_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def entry(name: str, snapshot: Snapshot, **changes) -> Entry:
    """An entry under the key of `name`; fresh for an hour after NOW, kept for two."""
    fields = {
        "key": key_of(name),
        "scope": "",
        "tenant": "acme",
        "policy": "standard",
        "upstream": "openai",
        "model": "gpt-4o-mini",
        "surface": "/chat/completions",
        "prompt": f"What is {name}?",
        "canonical": b'{"q":"%s"}' % name.encode(),
        "payload": b"It is " + name.encode(),
        "tags": ("model:gpt-4o-mini", "tenant:acme"),
        "snapshot": snapshot,
        "created_at": NOW,
        "expires_at": NOW + 3600,
        "keep_until": NOW + 7200,
        "input_tokens": 20,
        "output_tokens": 100,
        "latency_ms": 800.0,
    }
    fields.update(changes)
    fields["tags"] = tuple(sorted({*fields["tags"], *changes.get("extra_tags", ())}))
    fields.pop("extra_tags", None)
    return Entry(**fields)
