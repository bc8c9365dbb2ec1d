"""How kernels come to be, and what happens where they cannot."""

import logging
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from enginekit import GREEDY, Kit, Tiny, answer

from engine.attention.reference import attend
from engine.attention.spans import AttentionSpans
from engine.errors import EngineError
from engine.kernels import build
from engine.kernels.bindings import Kernels
from engine.kernels.build import KernelsUnavailable, compiler_path, cpu_flags, library_path
from engine.kernels.check import check, load_kernels, load_numba
from engine.kv.pool import LayerPages
from engine.models.families import load_model
from engine.sources.gguf import GGUFFile
from engine.text.tokenizer import tokenizer_from_gguf


def _script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_without_a_compiler_one_line_says_so_and_torch_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tiny_files: Tiny
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with caplog.at_level(logging.WARNING):
        assert load_kernels() is None
    (record,) = caplog.records
    assert "no-such-compiler" in record.getMessage()
    file = GGUFFile(tiny_files.path)
    model = load_model(file, weights="int8", max_positions=512, progress=lambda _: None)
    assert model.weights in ("fp32", "bf16")
    kit = Kit(model, tokenizer_from_gguf(file))
    assert answer(kit.engine(kv_dtype="int8"), [65, 66, 67], GREEDY).num_tokens > 0
    assert set(model.attention_calls) == {"torch"}


def test_numba_serves_where_cpp_cannot(tiny_files: Tiny) -> None:
    pytest.importorskip("numba")
    tiled = load_numba()
    assert tiled is not None
    file = GGUFFile(tiny_files.path)
    model = load_model(
        file, weights="fp32", max_positions=512, progress=lambda _: None, tiled=tiled
    )
    kit = Kit(model, tokenizer_from_gguf(file))
    by_numba = answer(kit.engine(kv_dtype="int8"), list(range(80)), GREEDY)
    assert model.attention_calls["numba"] > 0
    assert model.attention_calls["torch"] == 2 * 2, "float pages, to calibrate"
    plain = load_model(file, weights="fp32", max_positions=512, progress=lambda _: None)
    by_torch = answer(Kit(plain, kit.tokenizer).engine(kv_dtype="int8"), list(range(80)), GREEDY)
    assert by_numba.text == by_torch.text


def test_without_numba_torch_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "engine.attention.numba_pages", raising=False)
    with caplog.at_level(logging.WARNING):
        assert load_numba() is None
    assert "torch serves" in caplog.text


def test_a_cpu_without_avx2_gets_none(tmp_path: Path, kernels: Kernels) -> None:
    flags = cpu_flags() - {"avx2"}
    with pytest.raises(KernelsUnavailable, match="avx2"):
        library_path(compiler=compiler_path(), flags=flags, folder=tmp_path)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels are for x86-64")
@pytest.mark.parametrize("source", ["linear", "block"])
def test_what_uses_wider_registers_compiles_where_there_are_none(source: str) -> None:
    """AVX512 with VNNI, whatever CPU this is: no more than its types can be checked here."""
    path = Path(build.__file__).parent / f"{source}.cpp"
    flags = [flag for flag in build._FLAGS if not flag.startswith(("-O", "-march"))]
    command = [compiler_path(), *flags, "-march=icelake-server", "-fsyntax-only", str(path)]
    subprocess.run(command, check=True)


def test_what_a_compiler_says_is_told(tmp_path: Path, kernels: Kernels) -> None:
    text = 'case "$1" in --version) echo 1;; *) echo "no room left" >&2; exit 1;; esac'
    compiler = _script(tmp_path / "c++", text)
    with pytest.raises(KernelsUnavailable, match="no room left"):
        library_path(compiler=compiler, flags=cpu_flags(), folder=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == [], "nothing half done is left"


def test_a_library_is_built_once(
    tmp_path: Path, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Counts compilations, and leaves the work of minutes out: any file will do.
    text = (
        'case "$1" in --version) echo 1; exit;; esac\n'
        f'echo x >> {tmp_path}/runs\nfor last; do :; done\necho library > "$last"'
    )
    compiler = _script(tmp_path / "c++", text)
    folder = tmp_path / "cache"
    paths = {library_path(compiler=compiler, flags=cpu_flags(), folder=folder) for _ in range(3)}
    assert (tmp_path / "runs").read_text().split() == ["x"]
    monkeypatch.setattr(build, "_FLAGS", (*build._FLAGS, "-DOTHER"))
    paths.add(library_path(compiler=compiler, flags=cpu_flags(), folder=folder))
    assert (tmp_path / "runs").read_text().split() == ["x", "x"]
    assert len(paths) == 2


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(
    tmp_path: Path, kernels: Kernels
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(KernelsUnavailable, match="cannot be kept"):
        library_path(compiler=compiler_path(), flags=cpu_flags(), folder=tmp_path / "file")
    assert issubclass(KernelsUnavailable, EngineError)


class _Unbounded:
    """The same pages without their window."""

    def __init__(self, pages: LayerPages) -> None:
        self._pages = pages
        self.window = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._pages, name)


class _Wrong:
    """Kernels that miscompute one thing."""

    def __init__(self, kernels: Kernels, wrong: str) -> None:
        self._kernels = kernels
        self._wrong = wrong

    def attend(
        self, queries: torch.Tensor, pages: LayerPages, spans: AttentionSpans
    ) -> torch.Tensor:
        result = attend(queries, pages, spans)
        if self._wrong == "attend" or (self._wrong == "long heads" and queries.shape[-1] == 256):
            result[-1, 0, 3] += 0.01
        if self._wrong == "window" and queries.shape[-1] == 128:
            result = attend(queries, _Unbounded(pages), spans)
        return result

    def linear(self, *arguments: object) -> torch.Tensor:
        result = self._kernels.linear(*arguments)
        return result * float("nan") if self._wrong == "linear" else result

    def layer(self, weights: object, hidden: torch.Tensor, *rest: object) -> None:
        self._kernels.layer(weights, hidden, *rest)
        if self._wrong == "layer":
            hidden[-1] *= 1.1


def test_kernels_that_compute_something_else_are_refused(kernels: Kernels) -> None:
    check(kernels)
    check(_Wrong(kernels, "nothing"))
    said = {
        "attend": "attention",
        "long heads": "attention of long heads in a window",
        "window": "attention in a window",
        "linear": "linear",
        "layer": "layer",
    }
    for wrong, name in said.items():
        with pytest.raises(KernelsUnavailable, match=f"^{name} is off by"):
            check(_Wrong(kernels, wrong))
