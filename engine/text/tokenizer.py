"""Text to ids and back, for one model."""

from functools import cached_property
from pathlib import Path

from engine.sources.gguf import GGUFFile
from engine.text.detokeniser import Detokeniser
from engine.text.vocabulary.from_folder import vocabulary_from_folder
from engine.text.vocabulary.from_gguf import vocabulary_from_gguf
from engine.text.vocabulary.spelling import SPACE
from engine.text.vocabulary.vocabulary import Vocabulary


class Tokenizer:
    """Text to ids and ids to bytes. Safe to use from several threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        # A model's config may name a row of the padding behind its tokens.
        known = range(len(vocabulary.pieces))
        self.end_ids = frozenset(token_id for token_id in vocabulary.end_ids if token_id in known)
        """Tokens that end an answer."""

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary.pieces)

    @property
    def special_texts(self) -> tuple[str, ...]:
        """What control tokens look like in text."""
        names = self.vocabulary.names
        return tuple(names[token_id] for token_id in sorted(self.vocabulary.controls))

    @property
    def added_texts(self) -> tuple[str, ...]:
        """What other tokens look like that are found in a text before it is split."""
        tokens = self.vocabulary.outer.get_added_tokens_decoder().values()
        return tuple(token.content for token in tokens if not token.special)

    def name(self, token_id: int) -> str:
        """How the vocabulary spells a token; special tokens as they stand in templates."""
        return self.vocabulary.names[token_id]

    def encode(self, text: str) -> list[int]:
        """Ids of a text in which special tokens are parsed. Puts the model's beginning token in
        front, once."""
        return self.begun(self.vocabulary.outer.encode(text, add_special_tokens=False).ids)

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text in which nothing is special, and with nothing in front: how the inside of
        an answer would be spelled."""
        return list(self.vocabulary.inner.encode(text, add_special_tokens=False).ids)

    def begun(self, ids: list[int]) -> list[int]:
        """The ids of a prompt with the beginning token in front, where it is missing."""
        bos_id = self.vocabulary.bos_id
        return ids if bos_id is None or ids[:1] == [bos_id] else [bos_id, *ids]

    def bytes_of(self, token_id: int) -> bytes:
        """What a token adds to the answer's UTF-8; control tokens add nothing."""
        return self.vocabulary.pieces[token_id]

    @cached_property
    def silent_ids(self) -> dict[str, int]:
        """Tokens that add nothing to an answer, by how templates spell them."""
        pieces, names = self.vocabulary.pieces, self.vocabulary.names
        return {names[i]: i for i, piece in enumerate(pieces) if not piece}

    @cached_property
    def longest_text(self) -> int:
        """No token stands for more characters of a text."""
        return max(map(len, (*self.vocabulary.pieces, *self.vocabulary.names)))

    @cached_property
    def spaces_after_controls(self) -> bool:
        """Text behind a control token is read as if a space stood between them, as text at the
        beginning is. Asked of the vocabulary itself, for files say it in many ways."""
        for text in self.special_texts:
            ids = self.vocabulary.outer.encode(f"{text}a", add_special_tokens=False).ids
            return len(ids) > 1 and self.name(ids[1]).startswith(SPACE)
        return False

    def detokeniser(self, *, after: int | None = None) -> Detokeniser:
        """For one answer. `after` is the last token of its prompt: the space that a vocabulary
        reads into the text behind a control token is none of the answer's."""
        vocabulary = self.vocabulary
        skips = after in vocabulary.controls and self.spaces_after_controls
        return Detokeniser(vocabulary.pieces, skip_space=skips)


def tokenizer_from_gguf(file: GGUFFile) -> Tokenizer:
    """Raises ModelUnusable for a vocabulary of a kind that is not known. The file's template:
    `engine.text.templates.template_from_gguf`."""
    return Tokenizer(vocabulary_from_gguf(file))


def tokenizer_from_folder(folder: Path) -> Tokenizer:
    """Of a Hugging Face folder. Raises ModelUnusable for one without a tokenizer that can be
    read. The folder's template: `engine.text.templates.template_from_folder`."""
    return Tokenizer(vocabulary_from_folder(folder))
