"""A small stemmer: enough to see that `making` and `make` are one word, and no more.

Forms that carry meaning of their own (`-er`, `-less`, `un-`) are left alone.
"""

_IRREGULAR = {
    form: base
    for base, forms in {
        "be": "am is are was were been being",
        "have": "has had having",
        "do": "does did done doing",
        "go": "goes went gone going",
        "buy": "bought",
        "bring": "brought",
        "think": "thought",
        "teach": "taught",
        "catch": "caught",
        "make": "made",
        "get": "got gotten",
        "give": "gave given",
        "take": "took taken",
        "write": "wrote written",
        "speak": "spoke spoken",
        "break": "broke broken",
        "choose": "chose chosen",
        "begin": "began begun",
        "become": "became",
        "come": "came",
        "run": "ran",
        "know": "knew known",
        "grow": "grew grown",
        "see": "saw seen",
        "eat": "ate eaten",
        "fall": "fell fallen",
        "feel": "felt",
        "find": "found",
        "keep": "kept",
        "leave": "left",
        "lose": "lost",
        "meet": "met",
        "pay": "paid",
        "say": "said",
        "sell": "sold",
        "send": "sent",
        "build": "built",
        "spend": "spent",
        "tell": "told",
        "win": "won",
        "wear": "wore worn",
        "drive": "drove driven",
        "drink": "drank drunk",
        "sleep": "slept",
        "hold": "held",
        "die": "died dying",
        "lie": "lied lying",
        "man": "men",
        "woman": "women",
        "child": "children",
        "person": "people persons",
        "foot": "feet",
        "tooth": "teeth",
        "mouse": "mice",
        "life": "lives",
        "wife": "wives",
    }.items()
    for form in forms.split()
}

_VOWELS = frozenset("aeiouy")


def stem(word: str) -> str:
    """The stem of a lower-case word. Words of three letters or fewer stay as they are."""
    word = _IRREGULAR.get(word, word)
    if len(word) <= 3 or not word.isascii() or not word.isalpha():
        return word
    return _bare(_without_verb_ending(_singular(word)))


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_verb_ending(word: str) -> str:
    for ending in ("ing", "ed", "ly"):
        base = word.removesuffix(ending)
        if base is not word and len(base) >= 3 and not _VOWELS.isdisjoint(base):
            doubled = base[-1] == base[-2] and base[-1] not in "lsz"
            return base[:-1] if doubled and ending != "ly" else base
    return word


def _bare(word: str) -> str:
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word
