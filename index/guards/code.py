"""Code, identifiers, formulae, addresses and languages that differ by a sign: compared to the
letter.

Each pattern takes time in proportion to the text: a word is entered at its start alone, and what is
sought behind an opening bracket is sought not far.
"""

import re

from index.guards.guard import Guard
from index.guards.text import Text

_SHARP = r"@#$%^*+=/\\|~<>"
_CODE = re.compile(
    r"`[^`]++`"
    r"|\b\w++\([^)\n]{0,200}\)"  # a call
    r"|\b\w+_\w+\b|\b[a-z]{2,}+[A-Z]\w++"  # snake_case, camelCase
    r"|(?<!\w)--?[a-z][\w-]*+"  # an option
    r"|(?<!\S)(?!(?i:\.net\b))[.#@$][A-Za-z][\w-]*+"  # a selector, a variable
    r"|(?<!\S)(?:[*&!:]|\.{3})[A-Za-z_]\w*+(?!\*)"  # a pointer, a symbol, the rest
    r"|\$[?!@*#]|\\\w"  # of shells, of patterns
    r"|(?<!\w)\w*+\[[^\[\]\n]{0,200}\]"  # an index, a class of characters
    r"|(?<![\w-])[\w-]++\.(?:py|js|ts|c|h|cpp|java|go|rs|rb|sh|sql|json|ya?ml|txt|csv|html|css|md|exe)\b"
    r"|(?<![\w.-])(?=[\w-]*[A-Za-z])[\w-]{2,}+\.[a-z][\w-]*+(?:\.[\w-]++)*+"  # a dotted name
    r"|(?<!\w)(?:[a-z][a-z\d+-]{0,20}://|www\.)[^\s\"'<>]*+(?<![.,;:!?)])"  # a URL
    r"|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)*"  # an address
    r"|(?:[A-Za-z]:)?[/\\][\w.-]++[/\\][\w./\\-]++"  # a path
    r"|(?<!\S)[.~]{0,2}/[\w./-]*\w"  # a shorter one
    # A word of signs, but not those of prose; at the end of the text these end a sentence.
    rf"|(?<!\S)(?=[!-/:-@\[-`{{-~]++(?!\S))(?=[^\s{_SHARP}]*+[{_SHARP}])(?:[^\s?.,!]|[?.,!]++(?!\Z))++"
    r"|(?<!\S)[:;=8]['-]?[()\[\]DPpOo3/\\|*<>]++(?!\S)"  # a face
    r"|(?<=does )[?!.:]{2,}+(?=\s)"
    r"|[<>=!+*/%^&|-]=|&&|\|\||->|=>|::"
    r"|[\d)](?:\s*[-+*/^%<>=]\s*[\d(a-z][\w.]*+)+"  # arithmetic
    r"|\b[A-Za-z]\s*[-+*/^%=]\s*\w\b|(?<!\w)\w++[+*^%=]\w++|(?<!\w)\w++\s++[-+*/%]\s++\d++"
    r"|(?<![\w.])\d+\.{2,3}[<=]?\d+"  # a range
    r"|(?<!\S)\d+(?:\.\d+)?['\"]++(?![A-Za-z])"  # feet and inches
    # A name that ends in a mark: of a method, of a pattern.
    r"|\b\w++[?!](?=\s+(?:in|do|does|mean|means|match|matches|method|methods|returns?|vs)\b)"
    r"|[\d)]!+|(?<!\w)[A-Zb-hj-z](?:!+|'+(?!\w))"  # a factorial, a derivative
    r"|\b[A-Z][a-z]?\d?[+-](?!\w)"  # an ion, a grade
    r"|\b(?:not|and|or) \(|(?<!\S)\.{1,2}(?=\s+[a-z])"  # a group, a folder
    r"|\w\s*[<>]\s*\w"  # a comparison
    r"|[\^\\{}|~\[\]]"  # signs of patterns and programs, not of prose
    # Embedders read signs beyond ASCII, emoji among them, as one and the same unknown word.
    r"|[\u00a2-\u00b6\u00d7\u00f7\u20a0-\u20bf\u2190-\u2bff\U0001f000-\U0001faff]"
    r"|\b[A-Za-z]\+\+|\b[A-Za-z]#|\.NET\b|\bVB\.NET\b"
    r"|\b\w{1,3}[+*]++(?!\w)"  # repeated in a pattern
)
_OF_MARKED_NAMES = frozenset(
    {"ruby", "rails", "rust", "macro", "method", "elixir", "julia", "kotlin", "swift"}
)
"""Where a name may end in a mark."""
_MARKED = re.compile(r"\b\w++[?!](?=\s++[a-z])")
_ABOUT_SIGNS = frozenset({"symbol", "sign", "operator", "punctuation", "mark", "character", "mean"})
_SIGNS = re.compile(r"(?<!\S)[!-/:-@\[-`{-~]++(?=\s++\S)")


def _read(text: Text) -> tuple[str, ...]:
    source = text.source.strip()
    parts = [_plain(part) for part in _CODE.findall(source)]
    if not _OF_MARKED_NAMES.isdisjoint(text.words):
        parts += _MARKED.findall(source)
    if not _ABOUT_SIGNS.isdisjoint(text.stems):
        parts += _SIGNS.findall(source)
    lines = _lines(source) if "\n" in source else ()
    return (*sorted(parts), *lines)


def _plain(part: str) -> str:
    """Spaces say something in quoted code, nothing around a sign."""
    return (" " if part.startswith("`") else "").join(part.split())


def _lines(source: str) -> tuple[str, ...]:
    """The lines of a program, where every word decides, and how far each one is indented: from the
    first that looks like one to the end of the paragraph."""
    lines: list[str] = []
    is_code = False
    for line in source.split("\n"):
        is_code = bool(line.strip()) and (
            is_code or line[0].isspace() or _CODE.search(line) is not None
        )
        lines += [line.rstrip()] * is_code
    return tuple(lines)


def _compare(a: tuple[str, ...], b: tuple[str, ...]) -> str | None:
    return "code"


CODE = Guard(name="code", read=_read, compare=_compare)
