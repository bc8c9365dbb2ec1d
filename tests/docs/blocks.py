"""The fenced blocks of the documents."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted((*ROOT.glob("README*.md"), *ROOT.glob("docs/**/*.md")))
RUNNABLE = ("sh", "python", "yaml")
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(r"\s*(?:^|\s)#.*$")
_NAME = re.compile(r"# ([\w.-]+\.yaml)\n")


@dataclass(frozen=True)
class Block:
    where: str
    """File and line."""
    language: str
    text: str
    not_run: str | None
    """Why it cannot be run in tests."""
    prints: str | None = None
    """The `text` block that stands behind it."""

    @property
    def file(self) -> str | None:
        """The name under which a config is saved: its first line."""
        match = _NAME.match(self.text)
        return None if match is None else match[1]

    @property
    def code(self) -> tuple[str, ...]:
        """Comments aside."""
        lines = (_COMMENT.sub("", line) for line in self.text.splitlines())
        return (self.language, *filter(None, lines))


def original_of(path: Path) -> Path | None:
    """What a document was translated from."""
    if path.name == "README.zh.md":
        return path.with_name("README.md")
    return path.parents[1] / path.name if path.parent.name == "zh" else None


def blocks(path: Path) -> list[Block]:
    """Those that are run, in their order."""
    text = path.read_text()
    found: list[Block] = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text"))
        where = f"{path.relative_to(ROOT)}:{line}"
        block = Block(where, match["language"], match["text"], match["reason"])
        if block.language == "text" and found:
            found[-1] = Block(**{**vars(found[-1]), "prints": block.text})
        elif block.language in RUNNABLE:
            found.append(block)
    return found
