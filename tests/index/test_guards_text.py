"""Reading words: contractions, sentence starts, stems."""

import pytest

from index.guards.stem import stem
from index.guards.text import read_text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I can't", "i can not"),
        ("it won’t", "it will not"),
        ("what's new", "what is new"),
        ("the cat's bowl", "the cat bowl"),
        ("they've gone", "they have gone"),
        ("doesnt", "does not"),
        ("C++ and C# or .NET", "c++ and c# or .net"),
        ("1,000.5 km", "1,000.5 km"),
        ("不要茶", "not 要 茶"),
        ("他们昨天为什么没来呢？", "they yesterday why not 来"),
        ("这个特别好的别墅", "这 个 特别 好 别墅"),
        ("the US and us", "the usa and us"),
        ("mp3", "mp 3"),
        ("Hello, can you tell me how it works?", "how it works"),
        ("please please", ""),
    ],
)
def test_a_text_is_split_into_plain_words(text: str, words: str) -> None:
    assert read_text(text).words == tuple(words.split())


def test_a_capital_counts_only_where_no_sentence_begins() -> None:
    text = read_text("Rain fell. Then Anna left, and Bob")
    assert dict(zip(text.words, text.starts, strict=True)) == {
        "rain": True,
        "fell": False,
        "then": True,
        "anna": False,
        "left": False,
        "and": False,
        "bob": False,
    }


def test_an_empty_text_has_no_words() -> None:
    assert read_text(" \n…").words == ()


@pytest.mark.parametrize(
    ("forms", "one"),
    [
        ("make makes making made", True),
        ("study studies studied studying", True),
        ("stop stopped stopping stops", True),
        ("box boxes", True),
        ("child children", True),
        ("quick quickly", True),
        ("teach teacher", False),
        ("care careless", False),
        ("bus business", False),
        ("glass glad", False),
    ],
)
def test_forms_of_one_word_share_a_stem_and_others_do_not(forms: str, one: bool) -> None:
    assert (len({stem(form) for form in forms.split()}) == 1) is one
