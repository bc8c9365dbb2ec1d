"""The table of symptoms, as `docs/operations.md` prints it: each test reads its row here."""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

OPERATIONS = Path(__file__).parents[2] / "docs/operations.md"
_CODE = re.compile(r"`([^`]+)`")
_METRIC = re.compile(r"`(\w+)(?:\{(.*)\})?` rises")
_SEEN = re.compile(r"`#(\w+)`, \*\*(.+?)\*\* (rises|says)(?: `(.+)`)?")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Metric:
    """Samples of this name with these labels, added up."""

    name: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Element:
    """What is called `name` in a view of the dashboard."""

    view: str
    name: str
    verb: Literal["rises", "says"]
    text: str

    @property
    def figure(self) -> str:
        """What the page calls it for good: `requests-first-byte`."""
        return f"{self.view}-{re.sub('[^a-z]+', '-', self.name.lower())}"

    def is_said(self, texts: list[str]) -> bool:
        """An `N` in the text stands for any number but 0."""
        pattern = re.escape(self.text).replace("N", "[1-9][0-9,]*", self.text.startswith("N "))
        return any(re.search(pattern, one) for one in texts)


@dataclass(frozen=True)
class Row:
    symptom: str
    cause: str
    metric: Metric
    reasons: tuple[str, ...]
    """Words of `explain`."""
    element: Element


def rows() -> list[Row]:
    lines = OPERATIONS.read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("| symptom |")) + 2
    table = itertools.takewhile(lambda line: line.startswith("|"), lines[start:])
    return [_row([cell.strip() for cell in line.strip("|").split(" | ")]) for line in table]


def row(symptom: str, cause: str) -> Row:
    """`cause`: as it begins."""
    (found,) = (r for r in rows() if r.symptom == symptom and r.cause.startswith(cause))
    return found


def _row(cells: list[str]) -> Row:
    symptom, cause, metric, reasons, element, _ = cells
    name, labels = _METRIC.fullmatch(metric).groups()
    view, called, verb, text = _SEEN.fullmatch(element).groups()
    return Row(
        symptom=symptom,
        cause=cause,
        metric=Metric(name, tuple(_LABEL.findall(labels or ""))),
        reasons=tuple(_CODE.findall(reasons)),
        element=Element(view, called, verb, text or ""),
    )
