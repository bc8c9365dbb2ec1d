"""What is wrong with a text that is no YAML, in words for who wrote it, at the line to look at."""

import re

import msgspec
import yaml

_INDENTED = "the line is not indented as those are that it should go on with"
_NO_COLON = "a name and its value are written `name: value`, with a colon and a space"
_COLON = re.compile("mapping values are not allowed|<document start>.*<block mapping start>")
_MAPPING_LINE = re.compile(r":(\s|$)")
_TWO_VALUES = re.compile(r":\s.*:\s")


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """The first line is 1."""

    line: int
    message: str


class _Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What PyYAML says, as a pattern of `context; problem`, and what it means."""

    says: str
    means: str
    at_begin: bool = False
    """The mistake is where the thing began, not where it could not go on."""


_RULES = (
    _Rule(says=r"'\\t'", means="a tab cannot indent or begin a value in YAML; use spaces"),
    _Rule(
        says="quoted scalar; found unexpected",
        means="a quote is opened and not closed",
        at_begin=True,
    ),
    _Rule(
        says=r"unknown escape character '(.)'",
        means=r"`\{0}` means nothing in double quotes: write `\\{0}`, or use single quotes",
    ),
    _Rule(
        says="flow mapping; ",
        means="`{{` is not closed, or a comma or a quote is missing behind it",
        at_begin=True,
    ),
    _Rule(
        says="flow sequence; ",
        means="`[` is not closed, or a comma or a quote is missing behind it",
        at_begin=True,
    ),
    _Rule(says="flow node; ", means="a bracket is not closed, or a value is missing"),
    _Rule(says="simple key; ", means=_NO_COLON, at_begin=True),
    _Rule(
        says="character '(.)' that cannot start",
        means="a text that begins with `{0}` must be in quotes",
    ),
    _Rule(says="scanning an alias", means="a text that begins with `*` must be in quotes"),
    _Rule(
        says="undefined alias '(.*)'",
        means="nothing is marked `&{0}`; a text that begins with `*` must be in quotes",
    ),
    _Rule(says="scanning an anchor", means="a text that begins with `&` must be in quotes"),
    _Rule(says="another document", means="`---` begins another document, and only one is read"),
    _Rule(
        says="block scalar; ",
        means="behind `|` or `>` the text begins on the next line; one that begins so needs quotes",
    ),
    _Rule(says=r"found '([}}\]])'", means="a closing `{0}` too many"),
    _Rule(says="found '<scalar>'", means="a text stands behind a value that has ended"),
    _Rule(says="found '-'", means="an item of a list among names, or indented otherwise"),
    _Rule(says=r"found '\?'", means="a name among items of a list, or indented otherwise"),
    _Rule(says="<block end>", means=_INDENTED),
)


def mistake_in(text: str, error: yaml.MarkedYAMLError) -> Mistake:
    """Of a text that PyYAML could not read."""
    if _COLON.search(error.problem or "") and error.problem_mark is not None:
        return _colon(text.splitlines(), error.problem_mark.line)
    said = f"{error.context or ''}; {error.problem or ''}"
    for rule in _RULES:
        found = re.search(rule.says, said)
        if found is not None:
            mark = error.context_mark if rule.at_begin else error.problem_mark
            return Mistake(line=_line(mark), message=rule.means.format(*found.groups()))
    mark = error.problem_mark or error.context_mark
    return Mistake(line=_line(mark), message=error.problem or "this is not YAML")


def _colon(lines: list[str], number: int) -> Mistake:
    """A colon that does not fit; often it is the line before it that lacks one."""
    if _TWO_VALUES.search(lines[number]):
        return Mistake(line=number + 1, message="a value with a colon and a space needs quotes")
    before = number - 1
    while before >= 0 and not lines[before].split("#")[0].strip():
        before -= 1
    if before >= 0 and not _MAPPING_LINE.search(lines[before]):
        return Mistake(line=before + 1, message=_NO_COLON)
    return Mistake(line=number + 1, message=_INDENTED)


def _line(mark: yaml.Mark | None) -> int:
    line: int = 0 if mark is None else mark.line
    return line + 1
