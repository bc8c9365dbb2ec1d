"""Where a model's files lie, what they are called, and their digest. Reads no tensor."""

import hashlib
import importlib.util
import re
from pathlib import Path

import msgspec

from engine.errors import ModelUnusable

_PACKAGE = "package:"
_QUANTISATION = re.compile(r"[.\-_](?:i?q\d\w*|bf16|f16|f32)$", re.IGNORECASE)
_NOT_IN_ID = re.compile(r"[^a-z0-9.]+")


class WeightsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that holds a whole model: tensors, vocabulary, chat template."""

    path: Path

    @property
    def model_id(self) -> str:
        """`SmolLM2-135M-Instruct.Q4_1.gguf` → `smollm2-135m-instruct`. The file's name is what
        people know a model by; `general.name` inside is often the name of a training run."""
        stem = _QUANTISATION.sub("", self.path.stem)
        return _NOT_IN_ID.sub("-", stem.lower()).strip("-")

    def sha256(self) -> str:
        """Digest of the file's bytes, in hex. Reads the whole file."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def locate(model: str) -> WeightsFile:
    """Resolve `package:NAME` or a path to a `.gguf` file. Raises ModelUnusable."""
    if model.startswith(_PACKAGE):
        return WeightsFile(path=_in_package(model.removeprefix(_PACKAGE)))
    path = Path(model).expanduser()
    if path.is_dir():
        return WeightsFile(path=_only_gguf(path, model))
    if not path.is_file():
        raise ModelUnusable(f"model {model!r}: there is no such file")
    if path.suffix != ".gguf":
        raise ModelUnusable(f"model {model!r}: not a .gguf file")
    return WeightsFile(path=path)


def _in_package(name: str) -> Path:
    """The package is found but not imported: its own imports may be missing, and need not run."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise ModelUnusable(f"package {name!r} cannot be found: {error}") from error
    if spec is None or not spec.submodule_search_locations:
        raise ModelUnusable(f"package {name!r} is not installed")
    return _only_gguf(Path(next(iter(spec.submodule_search_locations))), f"package:{name}")


def _only_gguf(folder: Path, model: str) -> Path:
    files = sorted(folder.glob("**/*.gguf"))
    if len(files) != 1:
        raise ModelUnusable(f"model {model!r}: {len(files)} .gguf files in {folder}, not one")
    return files[0]
