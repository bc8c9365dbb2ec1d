"""Byte-level BPE out of tokens and merges, split beforehand as the family was trained.

The expressions are those that the families publish in their tokenizer files, by the names that
GGUF gives them in `tokenizer.ggml.pre`. A wrong one tokenises digits and blank lines otherwise
than the model was trained on.
"""

from collections.abc import Sequence

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library
from tokenizers.pre_tokenizers import PreTokenizer

from engine.errors import ModelUnusable

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _WORDS.format(digits=r"\p{N}{1,3}")
_QWEN2 = _WORDS.format(digits=r"\p{N}")
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
_SPLITS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "llama-v3": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "deepseek-r1-qwen": (_QWEN2,),
    "tekken": (_TEKKEN,),
    "default": _DEFAULT,
}
_TIKTOKEN = frozenset({"llama-bpe", "llama3", "llama-v3", "tekken"})
"""A word that is a token is taken whole, whatever the merges say; prompts have a beginning."""


def byte_level_library(tokens: Sequence[str], merges: Sequence[str], *, pre: str) -> Library:
    """`merges` are pairs with a space between. No token is special here. Raises ModelUnusable for
    a pre-tokenizer that is not known, and for merges that do not fit the tokens."""
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    splitter = _splitter(pre)
    try:
        model = models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=pre in _TIKTOKEN)
    except Exception as error:  # tokenizers raises no narrower type
        raise ModelUnusable(f"the vocabulary is broken: {error}") from error
    library = Library(model)
    library.pre_tokenizer = splitter
    if _SPLITS[pre] == (_QWEN2,):
        library.normalizer = normalizers.NFC()
    return library


def begins_prompts(pre: str) -> bool:
    """Whether prompts begin with the beginning token where the file does not say."""
    return pre in _TIKTOKEN


def _splitter(pre: str) -> PreTokenizer:
    if pre not in _SPLITS:
        raise ModelUnusable(f"pre-tokenizer {pre!r} is not supported; {', '.join(_SPLITS)} are")
    splits: list[PreTokenizer] = [
        pre_tokenizers.Split(Regex(expression), "isolated") for expression in _SPLITS[pre]
    ]
    splits.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(splits)
