"""Code, identifiers, formulae and languages that differ by a sign: compared to the letter."""

import re

from index.guards.guard import Guard
from index.guards.text import Text

_CODE = re.compile(
    r"`[^`]+`"
    r"|\b\w+\([^)\n]*\)"  # a call
    r"|\b\w+_\w+\b|\b[a-z]{2,}[A-Z]\w+\b"  # snake_case, camelCase
    r"|(?<!\w)--?[a-z][\w-]*"  # an option
    r"|(?<!\S)(?!(?i:\.net\b))[.#@$][A-Za-z][\w-]*"  # a selector, a variable
    r"|(?<!\S)[*&!][A-Za-z_]\w*(?![\w*])"  # a pointer
    r"|\$[?!@*#]|\\\w"  # of shells, of patterns
    r"|\w*\[[^\]\n]*\]"  # an index, a class of characters
    r"|\b[\w-]+\.(?:py|js|ts|c|h|cpp|java|go|rs|rb|sh|sql|json|ya?ml|txt|csv|html|css|md|exe)\b"
    r"|(?:[A-Za-z]:)?[/\\][\w.-]+[/\\][\w./\\-]+"  # a path
    r"|(?<!\S)\.{0,2}/[\w./-]*\w"  # a shorter one
    # A word of signs, but not those of prose.
    r"|(?<!\S)[!-/:-@\[-`{-~]*?[@#$%^*+=/\\|~<>][!-/:-@\[-`{-~]*?(?=\s|[?.,!]*$)"
    r"|[<>=!+*/%^&|-]=|&&|\|\||->|=>|::"
    r"|[\d)](?:\s*[-+*/^%<>=]\s*[\d(a-z][\w.]*)+"  # arithmetic
    r"|\b[A-Za-z]\s*[-+*/^%=]\s*\w\b|\w+[+*^%=]\w+|\w+\s+[-+*/%]\s+\d+"
    r"|\w\s*[<>]\s*\w"  # a comparison
    r"|[\^\\{}|~\[\]]"  # signs of patterns and programs, not of prose
    # Embedders read signs beyond ASCII, emoji among them, as one and the same unknown word.
    r"|[\u00a2-\u00b6\u00d7\u00f7\u20a0-\u20bf\u2190-\u2bff\U0001f000-\U0001faff]"
    r"|\b[A-Za-z]\+\+|\b[A-Za-z]#|\.NET\b|\bVB\.NET\b"
    r"|\b\w{1,3}[+*]+(?!\w)"  # repeated in a pattern
)


def _read(text: Text) -> tuple[str, ...]:
    return tuple(sorted(map(_plain, _CODE.findall(text.source))))


def _plain(part: str) -> str:
    """Spaces say something in quoted code, nothing around a sign."""
    return (" " if part.startswith("`") else "").join(part.split())


def _compare(a: tuple[str, ...], b: tuple[str, ...]) -> str | None:
    return "code"


CODE = Guard(name="code", read=_read, compare=_compare)
