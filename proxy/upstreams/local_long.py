"""What stays of long contexts, in the engine's terms."""

from engine.longcontext import LongContext
from proxy.settings import longcontext as written


def long_context(wanted: written.LongContext) -> LongContext:
    return LongContext(mode=wanted.mode, sinks=wanted.sinks, window=wanted.window, keep=wanted.keep)


def long_context_asked(wanted: written.LongContext | None) -> LongContext | None:
    """None: the client leaves it to the engine's config."""
    return None if wanted is None else long_context(wanted)
