"""Python's collector of cycles, set for a server."""

import gc

_THRESHOLDS = (20_000, 50, 20)
"""New objects before the youngest are looked through, and how many times each generation is before
the next. The default, 700, looks at every request in flight over and over."""


def settle() -> None:
    """Once everything is loaded: what is there now stays, so it need not be looked through again.

    Concerns the whole process. Without it a full collection walks through all modules and models
    loaded, which stops the event loop for tens of milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
