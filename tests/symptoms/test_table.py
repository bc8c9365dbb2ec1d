"""The table of symptoms itself."""

import re
from pathlib import Path

from table import row, rows

TESTS = ("test_symptoms.py", "test_processes.py")
SYMPTOMS = {
    *("slow", "memory grows", "low hit rate", "stale answers", "wrong answers"),
    *("upstream down", "engine restarts", "disk full"),
}


def test_every_symptom_has_a_row():
    assert {one.symptom for one in rows()} == SYMPTOMS


def test_every_row_of_the_table_has_a_test():
    text = "".join(Path(__file__).with_name(name).read_text() for name in TESTS)
    tested = {row(*names) for names in re.findall(r'\brow\("([^"]+)", "([^"]+)"\)', text)}
    assert tested == set(rows())
