"""Embedding models of the Hugging Face hub: from its local cache, else downloaded."""

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from index.errors import EmbedderFault

_WANTED = ("*.json", "*.txt", "*.model", "README.md", "model*.safetensors")
_UNWANTED = ("onnx/*", "openvino/*")
_NEEDED = ("modules.json", "tokenizer.json", "*.safetensors")


def hub_folder(repository: str) -> Path:
    """`ORG/NAME` → its folder in the cache, without asking the network where it is whole.
    Raises EmbedderFault."""
    try:
        return _cached(repository) or _downloaded(repository)
    except HFValidationError as error:
        raise EmbedderFault(f"hf:{repository} is no name of a model: {error}") from error
    except (OSError, HfHubHTTPError) as error:
        raise EmbedderFault(
            f"hf:{repository} is not in the local cache and cannot be downloaded: {error}"
        ) from error


def _downloaded(repository: str) -> Path:
    folder = _snapshot(repository, local=False)
    if not _is_whole(folder):  # without a network, the library is content with what there is
        raise EmbedderFault(
            f"hf:{repository} is not in the local cache as a sentence-transformers model "
            f"({', '.join(_NEEDED)})"
        )
    return folder


def _cached(repository: str) -> Path | None:
    try:
        folder = _snapshot(repository, local=True)
    except LocalEntryNotFoundError:
        return None
    return folder if _is_whole(folder) else None


def _is_whole(folder: Path) -> bool:
    return all(any(folder.glob(needed)) for needed in _NEEDED)


def _snapshot(repository: str, *, local: bool) -> Path:
    folder = snapshot_download(
        repository,
        allow_patterns=list(_WANTED),
        ignore_patterns=list(_UNWANTED),
        local_files_only=local,
    )
    return Path(folder)
