"""What a tokenizer is made of, whichever file it comes from."""

from collections.abc import Iterable, Sequence

import msgspec
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

TURN_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
)  # fmt: skip
"""Special tokens that end an answer even where a file names another one only, as many do."""


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """`names` and `pieces` are in id order: how a token is spelled in templates, and the bytes
    that it adds to a text. `controls` add none; they are never what a user writes."""

    outer: Library
    """A whole text to ids: added tokens are parsed, nothing is put in front."""
    inner: Library
    """The inside of a text: no token is parsed, no space is put in front."""
    names: Sequence[str]
    pieces: Sequence[bytes]
    controls: frozenset[int]
    end_ids: frozenset[int]
    bos_id: int | None
    """What a prompt begins with, None where the model wants none. An end token behind a prompt
    (`add_eos_token`) is left out on purpose: here every prompt is continued."""


def bare(library: Library, tokens: Iterable[AddedToken] = ()) -> Library:
    """One that shares the model, and splits text as `library` does, with other added tokens."""
    other = Library(library.model)
    other.normalizer = library.normalizer
    other.pre_tokenizer = library.pre_tokenizer
    other.add_tokens(list(tokens))
    return other


def added(text: str, *, special: bool) -> AddedToken:
    """Found in the text as it was written, before anything is normalised."""
    return AddedToken(text, special=special, normalized=False)


def with_turn_ends(
    declared: Iterable[int | None], names: Sequence[str], controls: frozenset[int]
) -> frozenset[int]:
    """The ids that are declared, and those of `TURN_ENDS` among the controls."""
    turn_ends = {token_id for token_id in controls if names[token_id] in TURN_ENDS}
    return frozenset({int(token_id) for token_id in declared if token_id is not None} | turn_ends)
