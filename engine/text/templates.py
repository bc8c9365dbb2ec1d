"""Finds a model's chat template where its files keep it."""

from pathlib import Path
from typing import Any

from engine.errors import ModelUnusable
from engine.sources.gguf import GGUFFile
from engine.text.chat import ChatTemplate
from engine.text.renderer import Renderer
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary.folder_facts import read_facts, read_object

_TOOL_USE = "tool_use"
_DEFAULT = "default"


def template_from_gguf(file: GGUFFile, tokenizer: Tokenizer) -> ChatTemplate | None:
    """None where the file has none. Raises ModelUnusable for one that is broken."""

    def spelled(name: str) -> str:
        token_id = file.get(f"tokenizer.ggml.{name}_token_id")
        return "" if token_id is None else tokenizer.name(token_id)

    sources = {
        _DEFAULT: file.get("tokenizer.chat_template"),
        _TOOL_USE: file.get(f"tokenizer.chat_template.{_TOOL_USE}"),
    }
    return _template(sources, tokenizer, bos=spelled("bos"), eos=spelled("eos"))


def template_from_folder(folder: Path, tokenizer: Tokenizer) -> ChatTemplate | None:
    """Of a Hugging Face folder: `chat_template.jinja` and its like in
    `additional_chat_templates/`, else `tokenizer_config.json`, else `chat_template.json`. None
    where it has none. Raises ModelUnusable for one that is broken."""
    facts = read_facts(folder)
    sources: dict[str, Any] = {}
    for name in ("chat_template.json", "tokenizer_config.json"):
        sources |= _named(read_object(folder / name).get("chat_template"))
    for path in sorted(folder.glob("additional_chat_templates/*.jinja")):
        sources[path.stem] = _text(path)
    if (path := folder / "chat_template.jinja").is_file():
        sources[_DEFAULT] = _text(path)
    return _template(sources, tokenizer, bos=facts.bos_text, eos=facts.eos_text)


def _named(value: Any) -> dict[str, Any]:
    """A template alone, or a list of `{"name": …, "template": …}`."""
    if not isinstance(value, list):
        return {} if value is None else {_DEFAULT: value}
    try:
        return {entry["name"]: entry["template"] for entry in value}
    except (KeyError, TypeError) as error:
        raise ModelUnusable("chat_template is no list of names and templates") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelUnusable(f"{path} cannot be read: {error}") from error


def _template(
    sources: dict[str, Any], tokenizer: Tokenizer, *, bos: str, eos: str
) -> ChatTemplate | None:
    default, tool_use = sources.get(_DEFAULT), sources.get(_TOOL_USE)
    if default is None:
        return None
    return ChatTemplate(
        default, tokenizer, renderer=Renderer(), bos=bos, eos=eos, tool_use=tool_use
    )
