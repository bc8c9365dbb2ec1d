"""What the documents tell people to type works: each block is run, in its order."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from blocks import DOCUMENTS, ROOT, blocks, original_of
from cyclopts.exceptions import CycloptsError

from proxy.cli import _app, main
from proxy.settings.file import parse

DEADLINE_S = 240
COMMAND = re.compile(r"`rejoinder ([a-z][^`]*)`")
# Four spaces after an empty line: code, if it is not a list's next paragraph.
INDENTED = re.compile(r"\n\n(?: {4}|\t)\s*([^\s*\-\d].*)")
LINK = re.compile(r"\]\(([^)#:]+)(?:#([^)]*))?\)")
# What a config in the documents may leave out, since it stands in another one.
REST = {
    "upstreams": 'upstreams: {main: {base_url: "http://127.0.0.1:9/v1"}}\n',
    "routes": "routes: [{to: main, cache: standard}]\n",
}
BELONGS = "# beside `upstreams` and `routes`"
SHELL = "set -euo pipefail\n"

names = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=names)


@each_document
@pytest.mark.asyncio(loop_scope="module")
async def test_every_block_of_a_document_runs(path, proxy, tmp_path):
    await proxy.http.post(f"{proxy.admin_url}/cache/purge", json={"all": True})
    for name in (".venv", "configs", "deploy"):
        (tmp_path / name).symlink_to(sys.prefix if name == ".venv" else ROOT / name)
    async with asyncio.timeout(DEADLINE_S):
        for block in own_blocks(path):
            await run(block, proxy, tmp_path)


def own_blocks(path):
    """A translation's are those that are not the original's: these are run there."""
    original = original_of(path)
    known = set() if original is None else {one.code for one in blocks(original)}
    return [one for one in blocks(path) if one.not_run is None and one.code not in known]


async def run(block, proxy, folder):
    if block.language == "yaml":
        text = whole(block.text)
        assert parse(Path(block.where), text, environ={}).config.routes, block.where
        if block.file is not None:
            (folder / block.file).write_text(block.text)
        return
    text = block.text.replace("http://127.0.0.1:8080", proxy.url)
    text = text.replace("http://127.0.0.1:8081", proxy.admin_url)
    command = (
        ["bash", "-c", SHELL + text.replace("rejoinder serve ", "rejoinder serve --check ")]
        if block.language == "sh"
        else [sys.executable, "-c", text]
    )
    printed = await output(command, proxy, folder, where=block.where)
    if block.prints is not None:
        assert printed == block.prints, block.where


async def output(command, proxy, folder, *, where):
    programs = Path(sys.executable).parent
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "REJOINDER_ADMIN": proxy.admin_url,
        },
    )
    printed, complaints = await process.communicate()
    assert process.returncode == 0, f"{where}:\n{complaints.decode()}{printed.decode()}"
    return printed.decode()


def whole(text):
    """A config, completed where it is a part of one."""
    missing = [rest for key, rest in REST.items() if not re.search(f"^{key}:", text, re.MULTILINE)]
    if missing and "policies:" not in text:
        missing.append("policies: {standard: {}}\n")
    return text + "\n" + "".join(missing)


@each_document
def test_every_command_on_lines_of_its_own_is_in_a_block_that_is_run(path):
    # Indented lines are code in Markdown too, but `blocks` does not see them.
    outside = blocks_removed(path.read_text())
    assert INDENTED.findall(outside) == []


def blocks_removed(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


@each_document
def test_every_command_in_a_sentence_exists(path):
    for command in COMMAND.findall(path.read_text()):
        # A placeholder such as `FILE` is an argument as any other; `…` stands for the rest.
        words = command.partition("…")[0].split()
        if len(words) == 1:
            assert words[0] in set(_app()), command
            continue
        try:
            _app().parse_args(words, exit_on_error=False, print_error=False)
        except CycloptsError as error:
            pytest.fail(f"`rejoinder {command}`: {error}")


@each_document
def test_every_link_of_a_document_leads_somewhere(path):
    for target, anchor in LINK.findall(path.read_text()):
        there = path.parent / target
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there.read_text()), f"{target}#{anchor}"


def anchors(text):
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


translations = [path for path in DOCUMENTS if original_of(path) is not None]


@pytest.mark.parametrize(
    "path", translations, ids=[str(path.relative_to(ROOT)) for path in translations]
)
def test_the_tables_of_a_translation_have_the_numbers_of_the_original(path):
    assert numbers(path) == numbers(original_of(path))


def numbers(path):
    """In the order in which they stand in tables; those of words in it, such as `p50`, too."""
    lines = (line for line in path.read_text().splitlines() if line.startswith("|"))
    return [sorted(re.findall(r"\d[\d,.]*", line)) for line in lines if re.search(r"\d", line)]


@each_document
def test_a_part_of_a_config_says_where_it_belongs(path):
    configs = [one for one in blocks(path) if one.language == "yaml"]
    parts = [one for one in configs if whole(one.text).removeprefix(one.text).strip()]
    assert [one.where for one in parts if not one.text.startswith(BELONGS)] == []
    assert all(one.file is None for one in parts)


def test_a_block_that_is_not_run_says_why():
    excused = [one for path in DOCUMENTS for one in blocks(path) if one.not_run is not None]
    assert excused
    assert all(len(one.not_run) > 20 for one in excused)


def test_the_reference_of_the_config_is_that_of_the_schema(capsys):
    assert main(["schema", "--markdown"]) == 0
    written = (ROOT / "docs/configuration.md").read_text()
    stale = "run: rejoinder schema --markdown > docs/configuration.md"
    assert written == capsys.readouterr().out, stale
