"""Word lists as they are read best: a line of words."""


def wordset(words: str) -> frozenset[str]:
    """The words of a line, parted by white space."""
    return frozenset(words.split())
