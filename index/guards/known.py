"""Words that there are. Two of them are no misspellings of one another, however alike they look.

`words.txt` holds the stems (`index.guards.stem`) of all whole words of Latin letters that stand in
the vocabulary of BERT's uncased English models (Apache License 2.0): the commonest words and names
of books and of Wikipedia.
"""

from functools import cache
from pathlib import Path

from index.guards.stem import stem


def is_known(word: str) -> bool:
    """Whether a word or stem is one that there is; so is what is no word of Latin letters."""
    return not (word.isascii() and word.isalpha()) or word in _words() or stem(word) in _words()


@cache
def _words() -> frozenset[str]:
    return frozenset(Path(__file__).with_name("words.txt").read_text("ascii").split())
