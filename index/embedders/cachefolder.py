"""Where exports and fingerprints of embedders are kept."""

import os
from pathlib import Path


def default_cache() -> Path:
    """`$XDG_CACHE_HOME/rejoinder` or `~/.cache/rejoinder`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rejoinder"
