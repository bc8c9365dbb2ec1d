"""A sentence-transformers model on disk: where it is, what it is, what it can read.

Nothing heavy is imported here, and a package that carries a model is never imported at all.
"""

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import msgspec
import yaml

from index.embedders.scripts import LATIN, scripts_of_languages
from index.errors import EmbedderFault

_PACKAGE = "package:"
_HUB = "hf:"
_MULTILINGUAL_VOCABULARY = 100_000
"""A vocabulary of this size was made for many languages (an English one has about 30,000)."""


_WITHOUT_EFFECT = frozenset(
    {
        "_name_or_path",
        "architectures",
        "attention_probs_dropout_prob",
        "classifier_dropout",
        "dtype",
        "gradient_checkpointing",
        "hidden_dropout_prob",
        "initializer_range",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
"""Of config.json: what training and loading need, and what another packing writes differently."""


class ModelFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model without loading it."""

    directory: Path
    digest: str
    """SHA-256 of all that decides which vectors it gives, however it is packed: 64 hex digits."""
    pooling: str
    prefix: str
    """Put before each text, as the model was trained; often empty."""
    max_tokens: int
    """Longest input, special tokens included."""
    scripts: frozenset[str] | None
    """Scripts that it was trained on; None for all."""


def read_model_files(model: str) -> ModelFiles:
    """Look at the model named by a path, by `package:NAME`, or by `hf:ORG/NAME` (the Hugging Face
    hub: its local cache, else a download).

    Raises `EmbedderFault` when there is no sentence-transformers model there, or a damaged one.
    """
    directory = _find(model)
    if not (directory / "modules.json").is_file():
        raise EmbedderFault(f"no sentence-transformers model (modules.json) in {directory}")
    try:
        return _read(directory)
    except (OSError, ValueError, TypeError, AttributeError) as fault:
        raise EmbedderFault(f"{directory} holds no readable model: {fault}") from fault


def _read(directory: Path) -> ModelFiles:
    return ModelFiles(
        directory=directory,
        digest=_digest(directory),
        pooling=_pooling(directory),
        prefix=_prefix(directory),
        max_tokens=_max_tokens(directory),
        scripts=_scripts(directory),
    )


def _find(model: str) -> Path:
    if model.startswith(_HUB):
        # Imported where it is needed: a model at hand needs no hub.
        from index.embedders.hub import hub_folder

        return hub_folder(model.removeprefix(_HUB))
    if not model.startswith(_PACKAGE):
        return Path(model).expanduser().resolve()
    name = model.removeprefix(_PACKAGE)
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise EmbedderFault(f"the package {name!r} is not installed")
    root = Path(spec.submodule_search_locations[0])
    found = min(root.rglob("modules.json"), key=lambda path: len(path.parts), default=None)
    return root if found is None else found.parent


def _digest(directory: Path) -> str:
    # A folder with both kinds of weights has the same ones twice.
    weights = sorted(directory.rglob("*.safetensors")) or sorted(directory.rglob("*.bin"))
    digest = hashlib.sha256(json.dumps(_settings(directory), sort_keys=True).encode())
    for path in weights:
        name = path.relative_to(directory).as_posix().encode()
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        digest.update(len(name).to_bytes(4, "big") + name + content)
    return digest.hexdigest()


def _settings(directory: Path) -> dict[str, Any]:
    """What is computed with the weights. Prefixes are told apart by `ModelFiles.prefix`."""
    config = _json(directory / "config.json")
    tokenizer = _json(directory / "tokenizer.json")
    return {
        "config": {key: config[key] for key in config.keys() - _WITHOUT_EFFECT},
        # We cut and pad nothing, whatever the tokenizer's file says of that.
        "tokenizer": {key: tokenizer[key] for key in tokenizer.keys() - {"truncation", "padding"}},
        "lower": bool(_json(directory / "sentence_bert_config.json").get("do_lower_case")),
        "pooling": _pooling(directory),
        "layers": {
            path.parent.name: _json(path)
            for path in directory.glob("*/config.json")
            # What normalises changes nothing of a vector that is made one of unit length anyway.
            if not path.parent.name.endswith(("_Pooling", "_Normalize"))
            and path.parent.name[:1].isdigit()
        },
    }


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text())
    except ValueError as fault:
        raise EmbedderFault(f"{path} cannot be read: {fault}") from fault
    return found if isinstance(found, dict) else {}


def _pooling(directory: Path) -> str:
    for path in sorted(directory.glob("*_Pooling/config.json")):
        config = _json(path)
        modes = [
            key.removeprefix("pooling_mode_")
            for key, value in config.items()
            if value is True and key.startswith("pooling_mode_")
        ]
        return "+".join(sorted(modes)) or str(config.get("pooling_mode", "unknown"))
    return "none"


def _prefix(directory: Path) -> str:
    config = _json(directory / "config_sentence_transformers.json")
    prompts = config.get("prompts") or {}
    return str(prompts.get(config.get("default_prompt_name") or "", ""))


def _max_tokens(directory: Path) -> int:
    limits = [
        _json(directory / "sentence_bert_config.json").get("max_seq_length"),
        _json(directory / "config.json").get("max_position_embeddings"),
    ]
    return min([int(limit) for limit in limits if limit], default=512)


def _scripts(directory: Path) -> frozenset[str] | None:
    languages = _card_languages(directory / "README.md")
    if languages and not {"multilingual", "mul"} & set(languages):
        return scripts_of_languages(languages)
    vocabulary = int(_json(directory / "config.json").get("vocab_size", 0))
    if languages or vocabulary >= _MULTILINGUAL_VOCABULARY:
        return None
    return LATIN


def _card_languages(card: Path) -> list[str]:
    """`language` of the model card's front matter, which every published model carries."""
    if not card.is_file():
        return []
    parts = card.read_text().split("---\n", 2)
    if len(parts) < 3 or parts[0].strip():
        return []
    try:
        front = yaml.safe_load(parts[1])
    except yaml.YAMLError:
        return []
    found = front.get("language") if isinstance(front, dict) else None
    # YAML reads the code of Norwegian, `no`, as a boolean.
    listed = found if isinstance(found, list) else [found]
    return ["no" if item is False else str(item) for item in listed if item is not None]
