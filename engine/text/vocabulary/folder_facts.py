"""What the small JSON files of a Hugging Face folder say about its tokens."""

import json
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import ModelUnusable


class FolderFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Empty texts are unknown."""

    bos_text: str
    eos_text: str
    add_bos_token: bool | None
    """None where the folder leaves it to the tokenizer."""
    end_ids: tuple[int, ...]
    """Of `generation_config.json` and `config.json`."""

    @property
    def eos_texts(self) -> tuple[str, ...]:
        return (self.eos_text,) if self.eos_text else ()


def read_facts(folder: Path) -> FolderFacts:
    """Files that are missing say nothing. Raises ModelUnusable for one that is not JSON."""
    config = read_object(folder / "tokenizer_config.json")
    texts = read_object(folder / "special_tokens_map.json") | config
    add_bos = config.get("add_bos_token")
    return FolderFacts(
        bos_text=_text(texts.get("bos_token")),
        eos_text=_text(texts.get("eos_token")),
        add_bos_token=add_bos if isinstance(add_bos, bool) else None,
        end_ids=(
            *_ids(read_object(folder / "generation_config.json").get("eos_token_id")),
            *_ids(read_object(folder / "config.json").get("eos_token_id")),
        ),
    )


def read_object(path: Path) -> dict[str, Any]:
    """Empty where there is no such file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ModelUnusable(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ModelUnusable(f"{path} holds no JSON object")
    return value


def _text(token: Any) -> str:
    """A token is a string, or an object with its `content`."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _ids(value: Any) -> tuple[int, ...]:
    """One id or several."""
    values = value if isinstance(value, list) else [value]
    return tuple(token_id for token_id in values if type(token_id) is int)
