"""Who may import whom. Read off the source, so that imports inside functions count too."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("proxy", "index", "engine")

# The bundled engine as an upstream.
KNOWS_ENGINE = "proxy/upstreams/local/"

# Where what is slow to import may stand, by file or folder. Nothing of it may load with the proxy.
HEAVY = {
    "torch": ("engine/", "index/embedders/export.py"),
    "triton": ("engine/attention/",),
    "numba": ("engine/attention/",),
    "gguf": ("engine/sources/gguf.py",),
    "safetensors": ("engine/",),
    "huggingface_hub": ("engine/sources/hub.py", "index/embedders/hub.py"),
    "transformers": (),
    "llguidance": ("engine/",),
    "redis": ("index/redis/",),
    "hiredis": ("index/redis/",),
    "tokenizers": (
        "engine/text/vocabulary/",
        "index/embedders/window.py",
        "index/embedders/runtimes.py",
    ),
    "faiss": ("index/nearest/vectors.py",),
    "onnx": ("index/embedders/export.py",),
    "onnxruntime": ("index/embedders/runtimes.py", "index/embedders/export.py"),
    "sentence_transformers": ("index/embedders/runtimes.py", "index/embedders/export.py"),
    "numpy": ("engine/", "index/"),
    "opentelemetry": ("proxy/observing/otlp.py",),
}


class Import(NamedTuple):
    """`module` is imported in `file`, relative to the root, at `line`."""

    file: str
    line: int
    module: str

    def __str__(self):
        return f"{self.file}:{self.line} imports {self.module}"


def module_of(file):
    parts = list(Path(file).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(root):
    return [path.relative_to(root) for name in PACKAGES for path in (root / name).rglob("*.py")]


def imports(root):
    """Every import of every module, wherever it stands; names are resolved to modules of ours."""
    ours = {module_of(file) for file in sources(root)}
    found = []
    for file in sources(root):
        for node in ast.walk(ast.parse((root / file).read_text())):
            found += [Import(str(file), node.lineno, name) for name in targets(node, ours)]
    return found


def targets(node, ours):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports hide who is meant"
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        submodules = [name for name in inner if name in ours]
        return submodules if len(submodules) == len(inner) else [*submodules, node.module]
    return []


def room(module):
    return module.split(".")[0]


def wrong_arrows(root):
    """Imports between packages that the picture of the rooms does not have."""
    wrong = []
    for one in imports(root):
        here, there = one.file.split("/")[0], room(one.module)
        if there not in PACKAGES or there == here:
            continue
        proxy_may = there == "index" or one.file.startswith(KNOWS_ENGINE)
        if here != "proxy" or not proxy_may:
            wrong.append(str(one))
    return wrong


def misplaced(root):
    """Heavy imports outside the files that need them."""
    return [
        str(one)
        for one in imports(root)
        if room(one.module) in HEAVY and not one.file.startswith(HEAVY[room(one.module)])
    ]


def cycle(root):
    """A circle of modules that import one another, or nothing."""
    ours = {module_of(file) for file in sources(root)}
    graph = {name: set() for name in ours}
    for one in imports(root):
        if one.module in ours:
            graph[module_of(one.file)].add(one.module)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []


def loaded_by(*modules):
    """Heavy packages that a fresh interpreter has loaded after importing `modules`."""
    program = f"import sys, {', '.join(modules)}\nprint(*({set(HEAVY)!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_packages_import_only_in_the_direction_of_the_picture():
    assert wrong_arrows(ROOT) == []


def test_heavy_imports_stand_only_where_they_are_needed():
    assert misplaced(ROOT) == []


def test_no_modules_import_one_another_in_a_circle():
    assert cycle(ROOT) == []


@pytest.mark.parametrize("module", ["proxy", "proxy.cli", "proxy.app"])
def test_importing_the_proxy_loads_nothing_heavy(module):
    assert loaded_by(module) == []


def test_no_module_of_the_proxy_loads_anything_heavy():
    """The engine's client, which the proxy holds, is as light as the rest."""
    exporter = "proxy/observing/otlp.py"  # imported where a config asks for it
    proxys = [file for file in sources(ROOT) if file.parts[0] == "proxy" and str(file) != exporter]
    modules = [module_of(file) for file in proxys]
    assert len(modules) > 10
    assert loaded_by(*modules) == []


@pytest.fixture
def tree(tmp_path):
    """A small tree of the three packages; the test writes the wrong import into it."""

    def build(**files):
        for name in PACKAGES:
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "__init__.py").touch()
        for name, text in files.items():
            (tmp_path / f"{name.replace('__', '/')}.py").write_text(text)
        return tmp_path

    return build


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("index__a", "import proxy.call"),
        ("index__a", "def f():\n    from engine import b"),
        ("engine__a", "from index.store import Store"),
        ("proxy__a", "from engine.process.client import Client"),
        ("proxy__app", "from engine import client"),
    ],
)
def test_a_wrong_arrow_is_seen(tree, file, text):
    (found,) = wrong_arrows(tree(**{file: text}))
    assert found.startswith(f"{file.replace('__', '/')}.py:")


def test_a_right_arrow_is_none(tree):
    (tree(proxy__a="import index.b") / "proxy/upstreams/local").mkdir(parents=True)
    assert wrong_arrows(tree(proxy__upstreams__local__ask="from engine import client")) == []


def test_a_heavy_import_in_the_wrong_file_is_seen(tree):
    assert misplaced(tree(proxy__a="def f():\n    import torch.nn")) == [
        "proxy/a.py:2 imports torch.nn"
    ]


@pytest.mark.parametrize(
    "back",
    [
        "import proxy.a",
        "from proxy import a",
        "from proxy.a import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from proxy.a import x",
    ],
)
def test_a_circle_is_seen(tree, back):
    root = tree(proxy__a="from proxy.b import y", proxy__b=back)
    assert set(cycle(root)) == {"proxy.a", "proxy.b"}
