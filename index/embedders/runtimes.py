"""What runs an embedding model: the int8 export on onnxruntime, or torch when there is none."""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from index.embedders.export import EXPORT_VERSION, MODEL_FILE, PROBES, PROBES_FILE
from index.embedders.modelfiles import ModelFiles
from index.errors import EmbedderFault

Vectors = NDArray[np.float32]

_LEAST_PROBE_COSINE = 0.98
_EXPORT_TIMEOUT_S = 600

logger = logging.getLogger(__name__)


class Runtime(Protocol):
    """Blocking; called from one thread at a time."""

    name: str
    dimension: int

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors [num_texts, dimension]. One text always gives the same vector."""
        ...


class OnnxRuntime:
    """The int8 export. Deterministic: the vector of a text does not depend on its neighbours."""

    name = f"onnx-int8-{EXPORT_VERSION}"

    def __init__(self, model: Path, *, tokenizer: Tokenizer, prefix: str, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Spinning threads would take the core that serves requests.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_cpu_mem_arena = False
        self._session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer = tokenizer
        self._prefix = prefix
        self.dimension = int(self._session.get_outputs()[0].shape[1])

    def encode(self, texts: Sequence[str]) -> Vectors:
        """One run a text: int8 scales are taken over a whole batch, so that neighbours would
        change a vector (measured: down to a cosine of .96), and a verdict with it."""
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            ids = np.array([self._tokenizer.encode(self._prefix + text).ids], dtype=np.int64)
            feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}  # [1, num_tokens]
            vectors[row] = self._session.run(None, feed)[0][0]
        return vectors


class TorchRuntime:
    """The original model in this process: slower and larger, for models that cannot be exported."""

    name = "torch"

    def __init__(self, files: ModelFiles) -> None:
        from sentence_transformers import SentenceTransformer

        self._model = SentenceTransformer(str(files.directory), device="cpu", local_files_only=True)
        self._prefix = files.prefix
        self.dimension = len(self.encode(["probe"])[0])

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Alone as well, so that padding cannot move a vector."""
        prefixed = [self._prefix + text for text in texts]
        vectors = self._model.encode(
            prefixed, batch_size=1, normalize_embeddings=True, show_progress_bar=False, prompt=""
        )
        return np.asarray(vectors, dtype=np.float32)


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """The model's tokenizer, without its truncation and padding: nothing is cut in silence.

    Raises EmbedderFault where there is none, or no whole one."""
    path = files.directory / "tokenizer.json"
    with _faults_of(str(path)):
        tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def load_runtime(files: ModelFiles, tokenizer: Tokenizer, *, threads: int, cache: Path) -> Runtime:
    """The export if it is there, can be made and agrees with the original; else torch.

    The first export of a model takes some ten seconds, and blocks. Raises EmbedderFault where torch
    cannot run the model either.
    """
    try:
        return _exported(files, tokenizer, threads=threads, cache=cache)
    except (EmbedderFault, OSError) as fault:
        logger.warning("embedder runs on torch, not on its int8 export: %s", fault)
    with _faults_of(str(files.directory)):
        return TorchRuntime(files)


def _exported(files: ModelFiles, tokenizer: Tokenizer, *, threads: int, cache: Path) -> OnnxRuntime:
    """From what is kept; where that cannot be read, it is made once more."""

    def opened() -> tuple[OnnxRuntime, float]:
        with _faults_of(str(kept)):
            runtime = OnnxRuntime(
                kept / MODEL_FILE, tokenizer=tokenizer, prefix=files.prefix, threads=threads
            )
            return runtime, _agreement(runtime, np.load(kept / PROBES_FILE))

    kept = cache / "embedders" / f"{files.digest[:32]}-{EXPORT_VERSION}"
    was_kept = kept.exists()
    if not was_kept:
        _make(files.directory, kept)
    try:
        runtime, cosine = opened()
    except EmbedderFault as fault:
        if not was_kept:
            raise
        logger.warning("the kept export of the embedder is damaged, and made anew: %s", fault)
        shutil.rmtree(kept, ignore_errors=True)
        _make(files.directory, kept)
        runtime, cosine = opened()
    # Made anew it would be the same.
    if not cosine >= _LEAST_PROBE_COSINE:
        raise EmbedderFault(f"the int8 export differs from the original (cosine {cosine:.3f})")
    return runtime


@contextmanager
def _faults_of(what: str) -> Iterator[None]:
    """Neither tokenizers, onnxruntime nor torch has one kind of error for what it cannot read: they
    raise bare exceptions, errors of Python's own, and classes made in C++ that share no base."""
    try:
        yield
    except Exception as fault:  # they share no narrower base, see above
        raise EmbedderFault(f"{what}: {fault}") from fault


def _make(model: Path, kept: Path) -> None:
    """Export into `kept`."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    logger.info("exporting the embedder to int8 (once), into %s", kept)
    making = Path(tempfile.mkdtemp(prefix=".making-", dir=kept.parent))
    try:
        _run_export(model, making)
        _publish(making, kept)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _run_export(model: Path, output: Path) -> None:
    command = [sys.executable, "-m", "index.embedders.export", str(model), str(output)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    try:
        subprocess.run(  # noqa: S603  (our own module, paths of the operator)
            command, check=True, capture_output=True, timeout=_EXPORT_TIMEOUT_S, env=environment
        )
    except subprocess.TimeoutExpired as fault:
        raise EmbedderFault("the export took too long") from fault
    except subprocess.CalledProcessError as fault:
        last_line = fault.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise EmbedderFault(f"the export failed: {last_line}") from fault


def _publish(making: Path, kept: Path) -> None:
    """Appear whole or not at all; another process may have been first, which is as good."""
    for written in (*making.iterdir(), making):
        _to_disk(written)
    try:
        making.rename(kept)
    except OSError:
        if not (kept / MODEL_FILE).is_file():
            raise
    _to_disk(kept.parent)


def _to_disk(path: Path) -> None:
    """A name that outlives a power cut before its content does is a damaged export."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _agreement(runtime: Runtime, original: Vectors) -> float:
    """The least cosine of the probes, [num_probes, dimension] each."""
    return float(np.einsum("pd,pd->p", runtime.encode(PROBES), original).min())
