"""Opens what `sources.weights` has located: a model's tensors, tokenizer and chat template."""

from pathlib import Path

import msgspec

from engine.sources.folder import ModelFolder
from engine.sources.gguf import GGUFFile
from engine.sources.source import Source
from engine.text.chat import ChatTemplate
from engine.text.templates import template_from_folder, template_from_gguf
from engine.text.tokenizer import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf


class OpenedModel(msgspec.Struct, frozen=True, kw_only=True):
    """`template` is None for models that have none."""

    source: Source
    tokenizer: Tokenizer
    template: ChatTemplate | None


def open_model(path: Path) -> OpenedModel:
    """A GGUF file, or a folder as transformers saves it. Raises ModelUnusable."""
    if path.is_dir():
        tokenizer = tokenizer_from_folder(path)
        return OpenedModel(
            source=ModelFolder(path),
            tokenizer=tokenizer,
            template=template_from_folder(path, tokenizer),
        )
    file = GGUFFile(path)
    tokenizer = tokenizer_from_gguf(file)
    return OpenedModel(
        source=file, tokenizer=tokenizer, template=template_from_gguf(file, tokenizer)
    )
