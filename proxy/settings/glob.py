"""Patterns of model names, paths and headers in the config: `*` and `?`, nothing else."""

import re


def compile_globs(*globs: str) -> re.Pattern[str]:
    """One expression that fully matches what any of the patterns does.

    `*` stands for any text, slashes too, `?` for one character, all else for itself.
    """
    return re.compile("|".join(map(_expression, globs)), re.DOTALL)


def is_literal(glob: str) -> bool:
    """Matches nothing but itself."""
    return "*" not in glob and "?" not in glob


def covers(wide: str, narrow: str) -> bool:
    """Everything that `narrow` matches, `wide` matches. May be False where that is hard to tell.

    A `*` of `wide` takes in whatever a wildcard of `narrow` stands for, so `narrow` may be matched
    as it is written; a `?` of `wide` would take its `*` for one character.
    """
    return "?" not in wide and compile_globs(wide).fullmatch(narrow) is not None


def _expression(glob: str) -> str:
    """Between two `*` the first place will do, and none is tried again: else texts that clients
    send could take a time that grows by another power of their length with each `*`."""
    first, *rest = (re.escape(part).replace(r"\?", ".") for part in re.split(r"\*+", glob))
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>.*?{part})" for part in middle) + ".*" + last
