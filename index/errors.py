"""Errors of the index.

IndexFault
├── StoreFault           the store cannot be read or written; the proxy treats it as a miss
│   └── StoreUnusable    found at start: unwritable path, newer format; `serve` refuses
├── EmbedderFault        no embedding in time; the proxy treats it as a miss
│   └── TextRefused      a server does not take one of these texts, and is well otherwise
├── InvalidTag           a tag outside the grammar; the caller answers 400
└── InvalidCursor        a scan's cursor that no scan gave; the caller answers 400
"""


class IndexFault(Exception):
    """Root of everything that the index raises on purpose."""


class StoreFault(IndexFault):
    """The store failed while serving. Never a wrong answer: the caller counts a miss."""


class StoreUnusable(StoreFault):
    """The store cannot be opened; the message names the path and what to do."""


class EmbedderFault(IndexFault):
    """No embedding could be made (model failed, late, remote server down)."""


class TextRefused(EmbedderFault):
    """A remote embedder does not take a text, such as one that is longer than its model reads."""


class InvalidTag(IndexFault):
    """A tag that the grammar of `index.tags` refuses; the message says which and why."""


class InvalidCursor(IndexFault):
    """Where a scan shall go on is none of the cursors that scans give."""
