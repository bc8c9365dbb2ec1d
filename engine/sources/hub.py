"""Models of the Hugging Face hub: from its local cache, else downloaded."""

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from engine.errors import ModelUnusable
from engine.sources.shards import safetensors_files

_WANTED = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model")
_CONFIG = "config.json"


def hub_folder(repository: str) -> Path:
    """`ORG/NAME` → its folder in the cache, without asking the network where it is whole.
    Raises ModelUnusable."""
    try:
        return cached_folder(repository) or _downloaded(repository)
    except (OSError, HfHubHTTPError) as error:
        raise ModelUnusable(
            f"hf:{repository} is not in the local cache and cannot be downloaded: {error}"
        ) from error


def cached_folder(repository: str) -> Path | None:
    """As `hub_folder`, but None for what would have to be downloaded."""
    try:
        folder = _snapshot(repository, local=True)
        safetensors_files(folder)
    except HFValidationError as error:
        raise ModelUnusable(f"hf:{repository} is no name of a model: {error}") from error
    except (LocalEntryNotFoundError, ModelUnusable):
        return None
    return folder if (folder / _CONFIG).is_file() else None


def _downloaded(repository: str) -> Path:
    folder = _snapshot(repository, local=False)
    safetensors_files(folder)  # without a network, the library is content with what there is
    return folder


def _snapshot(repository: str, *, local: bool) -> Path:
    folder = snapshot_download(repository, allow_patterns=list(_WANTED), local_files_only=local)
    return Path(folder)
