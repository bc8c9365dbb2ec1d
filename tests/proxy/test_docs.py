"""What the documents tell people to type exists."""

import re
from pathlib import Path

import pytest
from cyclopts.exceptions import CycloptsError

from proxy.cli import _app
from proxy.settings.file import parse

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MORE = """
upstreams: {main: {base_url: "http://127.0.0.1:9/v1"}}
routes: [{to: main, cache: standard}]
"""


def blocks(language):
    texts = [path.read_text() for path in sorted(DOCS.glob("*.md"))]
    return [body for text in texts for kind, body in BLOCK.findall(text) if kind == language]


def test_every_command_in_the_documents_exists():
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [line.partition("#")[0].split()[1:] for line in lines if "rejoinder" in line]
    assert commands
    for command in commands:
        try:
            _app().parse_args(command, exit_on_error=False, print_error=False)
        except CycloptsError as error:
            pytest.fail(f"{command}: {error}")


def test_every_policy_in_the_documents_is_a_good_one():
    policies = [block for block in blocks("yaml") if block.startswith("policies:")]
    assert policies
    for block in policies:
        assert parse(Path("docs.yaml"), block + MORE, environ={}).config.policies
