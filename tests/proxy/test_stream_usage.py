import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstreams.stream_usage import with_usage, without_usage

ASKED = {"include_usage": True}


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, ASKED),
        ({"stream_options": None}, ASKED),
        ({"stream_options": {}}, ASKED),
        ({"stream_options": {"include_usage": False}}, ASKED),
        (
            {"stream_options": {"include_obfuscation": False}},
            {"include_obfuscation": False} | ASKED,
        ),
        ({"stream_options": ASKED}, ASKED),
    ],
)
@pytest.mark.parametrize("end", ["", "\n", "  \r\n"])
def test_usage_is_asked_for_whatever_the_body_says(
    options: dict[str, object], asked: dict[str, object], end: str
) -> None:
    body = (json.dumps({"model": "m", **options}, indent=1) + end).encode()
    assert json.loads(with_usage(body)) == {"model": "m", "stream_options": asked}


def test_a_body_that_asks_already_stays_as_it_is() -> None:
    body = b'{ "stream_options": {"include_usage": true}, "x": 1.0 }'
    assert with_usage(body) is body


@given(
    st.dictionaries(
        st.text(max_size=4), st.text(max_size=4) | st.floats(allow_nan=False, allow_infinity=False)
    )
)
def test_everything_else_in_the_body_stays(fields: dict[str, object]) -> None:
    body = json.dumps({**fields, "model": "m", "stream": True}).encode()
    asking = with_usage(body)
    assert asking.startswith(body[:-1])
    assert json.loads(without_usage(asking)) == json.loads(body)


def test_words_in_a_text_are_not_taken_for_the_option() -> None:
    body = json.dumps({"messages": [{"content": '"stream_options"'}]}).encode()
    nested = b'{"messages":[{"stream_options":1}]}'
    for told in (body, nested):
        assert json.loads(with_usage(told)) == json.loads(told) | {"stream_options": ASKED}
        assert json.loads(without_usage(told)) == json.loads(told)
