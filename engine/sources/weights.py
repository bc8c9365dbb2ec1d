"""Where a model's files lie, what they are called, and their digest. Reads no tensor."""

import functools
import hashlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import msgspec

from engine.errors import ModelUnusable
from engine.sources.shards import gguf_parts, safetensors_files

_PACKAGE = "package:"
_HUB = "hf:"
_CONFIG = "config.json"
_QUANTISATION = re.compile(r"[.\-_](?:i?q\d\w*|bf16|f16|f32)$", re.IGNORECASE)
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_NOT_IN_ID = re.compile(r"[^a-z0-9.]+")
_ANSWERS_DEPEND_ON = ("*.json", "*.jinja", "tokenizer.model")
"""Of a folder, besides its tensors: config, vocabulary, chat template."""


class WeightsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A GGUF file (of one that is split, the first part), or a folder with config.json."""

    path: Path
    name: str = ""
    """What the model is called, where the path does not say."""

    @property
    def model_id(self) -> str:
        """`SmolLM2-135M-Instruct.Q4_1.gguf` → `smollm2-135m-instruct`. The file's name is what
        people know a model by; `general.name` inside is often the name of a training run."""
        name = self.name or (self.path.stem if self.path.suffix == ".gguf" else self.path.name)
        return _model_id(name)

    def files(self) -> tuple[Path, ...]:
        """All files that answers depend on. Raises ModelUnusable when some are missing."""
        if not self.path.is_dir():
            return gguf_parts(self.path)
        texts = {file for pattern in _ANSWERS_DEPEND_ON for file in self.path.glob(pattern)}
        return (*safetensors_files(self.path), *sorted(texts))

    def sha256(self) -> str:
        """Digest of the bytes of all files, in hex; of several, with their names. Reads all."""
        digests = {file.name: _sha256(file, _Stamp.of(file)) for file in self.files()}
        if len(digests) == 1:
            return next(iter(digests.values()))
        return hashlib.sha256(msgspec.json.encode(sorted(digests.items()))).hexdigest()


class _Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """Of a file; another one where something has written to it."""

    num_bytes: int
    written_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> "_Stamp":
        found = path.stat()
        return cls(num_bytes=found.st_size, written_ns=found.st_mtime_ns, inode=found.st_ino)


def model_id(model: str) -> str:
    """Of what `locate` finds, without a download. Raises ModelUnusable."""
    if model.startswith(_HUB):
        return _model_id(model.rpartition("/")[2])
    return locate(model).model_id


def is_at_hand(model: str) -> bool:
    """`locate` would download nothing. Raises ModelUnusable."""
    if not model.startswith(_HUB):
        return True
    return _hub().cached_folder(model.removeprefix(_HUB)) is not None


def locate(model: str) -> WeightsFile:
    """Resolve a path to a `.gguf` file or to a folder (of a model as transformers saves it, or
    with one `.gguf`), `package:NAME` (a package that holds either), or `hf:ORG/NAME` (the Hugging
    Face hub's cache, else a download: blocks). Raises ModelUnusable."""
    if model.startswith(_PACKAGE):
        return _in_package(model.removeprefix(_PACKAGE))
    if model.startswith(_HUB):
        return _of_hub(model.removeprefix(_HUB))
    path = Path(model).expanduser()
    if path.is_dir():
        return _in_folder(path, model)
    if not path.is_file():
        raise ModelUnusable(f"model {model!r}: there is no such file")
    if path.suffix != ".gguf":
        raise ModelUnusable(f"model {model!r}: not a .gguf file, nor a folder")
    return WeightsFile(path=gguf_parts(path)[0])


def _in_package(name: str) -> WeightsFile:
    """The package is found but not imported: its own imports may be missing, and need not run."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise ModelUnusable(f"package {name!r} cannot be found: {error}") from error
    if spec is None or not spec.submodule_search_locations:
        raise ModelUnusable(f"package {name!r} is not installed")
    root = Path(next(iter(spec.submodule_search_locations)))
    model = f"{_PACKAGE}{name}"
    folders = [file.parent for file in root.glob(f"**/{_CONFIG}")]
    return _in_folder(folders[0] if len(folders) == 1 else root, model)


def _of_hub(repository: str) -> WeightsFile:
    return WeightsFile(path=_hub().hub_folder(repository), name=repository.rpartition("/")[2])


def _hub() -> ModuleType:
    try:
        from engine.sources import hub
    except ImportError as error:
        raise ModelUnusable("models of the hub need the package huggingface_hub") from error
    return hub


def _in_folder(folder: Path, model: str) -> WeightsFile:
    """A GGUF file is a model by itself; beside a config.json the tensors may be either."""
    if (folder / _CONFIG).is_file() and any(folder.glob("*.safetensors*")):
        safetensors_files(folder)
        return WeightsFile(path=folder.resolve())
    models = {gguf_parts(file)[0] for file in folder.glob("**/*.gguf")}
    if len(models) != 1:
        raise ModelUnusable(
            f"model {model!r}: {folder} holds {len(models)} .gguf models, not one, and no "
            "config.json with safetensors"
        )
    return WeightsFile(path=models.pop())


def _model_id(name: str) -> str:
    stem = _QUANTISATION.sub("", _PART.sub("", name))
    return _NOT_IN_ID.sub("-", stem.lower()).strip("-")


@functools.lru_cache(maxsize=256)
def _sha256(path: Path, _stamp: _Stamp) -> str:
    """Kept, for gigabytes are read in seconds, and every reload asks again."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
