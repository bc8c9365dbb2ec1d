"""Scripts of texts and languages."""

import pytest

from index.embedders.scripts import scripts_of, scripts_of_languages


@pytest.mark.parametrize(
    ("text", "scripts"),
    [
        ("tea", {"LATIN"}),
        ("thé, öl ﬁne", {"LATIN"}),
        ("ｆｕｌｌ", {"LATIN"}),
        ("茶 tea", {"CJK", "LATIN"}),
        ("чай", {"CYRILLIC"}),
        ("お茶", {"HIRAGANA", "CJK"}),
        ("42 + 7 = ? 🙂", set()),
    ],
)
def test_letters_tell_the_script_and_nothing_else_does(text: str, scripts: set[str]) -> None:
    assert scripts_of(text) == scripts


def test_a_language_is_written_in_latin_letters_unless_known_otherwise() -> None:
    assert scripts_of_languages(["en", "de"]) == {"LATIN"}
    assert scripts_of_languages(["en", "zh-CN"]) == {"LATIN", "CJK"}
