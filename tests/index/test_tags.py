"""The grammar of tags and where they come from."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index import tags
from index.errors import InvalidTag

VISIBLE = "".join(sorted(set(string.printable) - set(string.whitespace) - {","}))


def test_every_visible_character_but_comma_is_kept_as_it_is():
    assert tags.encode(VISIBLE) == VISIBLE
    tags.validate(VISIBLE)


def test_what_is_outside_the_grammar_is_percent_encoded_byte_by_byte():
    assert tags.encode("a,b c\té") == "a%2Cb%20c%09%C3%A9"
    assert tags.encode("价格".encode()) == tags.encode("价格") == "%E4%BB%B7%E6%A0%BC"


def test_bytes_in_latin_1_name_the_tag_that_their_text_names():
    assert tags.encode(b"doc:caf\xe9") == tags.encode("doc:café") == "doc:caf%C3%A9"
    assert tags.parse(b"doc:caf\xe9, doc:\xc3\xa9") == ("doc:caf%C3%A9", "doc:%C3%A9")
    assert tags.parse_surrogate_keys(b"caf\xe9 a\xa0b") == ("caf%C3%A9", "a%C2%A0b")


@pytest.mark.parametrize("value", ["doc:caf%c3%a9", b"doc:caf%c3%A9", "doc:café"])
def test_case_of_percent_escapes_does_not_make_another_tag(value):
    assert tags.encode(value) == "doc:caf%C3%A9"
    assert tags.model_tag("a%c3") == tags.encode("model:a%c3") == "model:a%C3"


def test_text_with_half_a_character_is_read_alike_alone_and_in_a_list():
    assert tags.parse("\ud800é") == (tags.encode("\ud800é"),)


@given(st.text(min_size=1, max_size=20) | st.binary(min_size=1, max_size=40))
def test_encoded_value_is_valid_and_encodes_to_itself(value):
    tag = tags.encode(value)
    tags.validate(tag)
    assert tags.encode(tag) == tag


@pytest.mark.parametrize("bad", ["", "a b", "a,b", "é", "a\n", "x" * 257])
def test_tag_outside_the_grammar_is_refused(bad):
    with pytest.raises(InvalidTag):
        tags.validate(bad)


def test_length_counts_after_encoding():
    assert len(tags.encode("x" * 256)) == 256
    with pytest.raises(InvalidTag, match="258 bytes"):
        tags.encode("é" * 43)


def test_header_list_is_split_at_commas_and_empty_members_do_not_count():
    assert tags.parse(" doc:42, kb:prices,,\tA B ,") == ("doc:42", "kb:prices", "A%20B")
    assert tags.parse("doc:é".encode()) == ("doc:%C3%A9",)
    assert tags.parse("") == ()


def test_surrogate_keys_are_split_at_spaces():
    assert tags.parse_surrogate_keys(b"doc:42  kb:prices a,b") == ("doc:42", "kb:prices", "a%2Cb")


def test_cache_groups_are_quoted_strings():
    assert tags.parse_cache_groups(r'"doc 42", "a\"b";x=1 ,"c"') == ("doc%2042", 'a"b', "c")
    assert tags.parse_cache_groups(b"") == ()
    for bad in ("doc", '"a" "b"', '"a",', '"a', "1"):
        with pytest.raises(InvalidTag):
            tags.parse_cache_groups(bad)


def test_client_tags_are_sorted_each_once_in_one_form():
    assert tags.client_tags(["b", "a", "B", "b", "x y", "x%20y"]) == ("B", "a", "b", "x%20y")


@pytest.mark.parametrize(
    "reserved", ["model:x", "route:x", "tenant:x", "system:x", "policy:x", "key:x", "*"]
)
def test_client_cannot_use_a_reserved_tag_but_an_upstream_may(reserved):
    with pytest.raises(InvalidTag, match="reserved"):
        tags.client_tags(["fine", reserved])
    assert tags.upstream_tags([reserved]) == (reserved,)


def test_129_tags_are_refused_and_128_are_not():
    many = [f"doc:{number}" for number in range(129)]
    for collect in (tags.client_tags, tags.upstream_tags):
        assert len(collect(many[:128] + many[:5])) == 128
        with pytest.raises(InvalidTag, match="129"):
            collect(many)


@given(st.text(max_size=400))
def test_implicit_tags_never_fail_are_valid_and_reserved(value):
    for make in (
        tags.model_tag,
        tags.route_tag,
        tags.tenant_tag,
        tags.policy_tag,
        tags.system_tag,
        tags.key_tag,
    ):
        tag = make(value)
        tags.validate(tag)
        assert tag.startswith(tags.RESERVED)


def test_implicit_tags_name_their_value_and_long_ones_stay_apart():
    assert tags.model_tag("gpt-4o") == "model:gpt-4o"
    assert tags.tenant_tag("a,b") == "tenant:a%2Cb"
    assert tags.model_tag("x" * 300 + "a") != tags.model_tag("x" * 300 + "b")
    assert "secret" not in tags.system_tag("my secret prompt")


def test_union_is_sorted_and_holds_each_once():
    assert tags.union(("b", "a"), ("c", "a")) == ("a", "b", "c")
