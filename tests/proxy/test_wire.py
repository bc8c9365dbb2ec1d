import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.call import Surface
from proxy.errors import ClientError
from proxy.request import wire

CHAT = b'"model":"m","messages":[{"role":"user","content":"hi"}]'


def body(rest: bytes) -> bytes:
    return b"{" + CHAT + b"," + rest + b"}"


def refusal(surface: Surface, data: bytes) -> ClientError:
    with pytest.raises(ClientError) as caught:
        wire.decode(surface, data)
    assert caught.value.status == 400
    assert caught.value.kind == "invalid_request_error"
    return caught.value


@pytest.mark.parametrize(
    ("path", "surface"),
    [
        ("/chat/completions", Surface.CHAT),
        ("/chat/completions/", Surface.CHAT),
        ("/completions", Surface.COMPLETIONS),
        ("/embeddings", Surface.EMBEDDINGS),
        ("/responses", Surface.RESPONSES),
        ("/responses/resp_1", None),
        ("/files", None),
        ("/Chat/Completions", None),
        ("/", None),
        ("", None),
    ],
)
def test_surface_is_found_by_the_path_below_v1(path, surface):
    assert wire.surface_of(path) is surface


@pytest.mark.parametrize(
    ("rest", "param"),
    [
        (b'"n":0', "n"),
        (b'"n":true', "n"),
        (b'"stream":"yes"', "stream"),
        (b'"stream_options":{"include_usage":1}', "stream_options.include_usage"),
        (b'"temperature":"0.5"', "temperature"),
        (b'"max_tokens":1.5', "max_tokens"),
        (b'"stop":[1]', "stop[0]"),
        (b'"tools":{}', "tools"),
        (b'"tools":["x"]', "tools[0]"),
        (b'"response_format":"json"', "response_format"),
        (b'"api_base":"http://x"', "api_base"),
        (b'"base_url":null', "base_url"),
        (b'"api_key":"k"', "api_key"),
    ],
)
def test_wrong_type_in_a_chat_request_names_the_field(rest, param):
    assert refusal(Surface.CHAT, body(rest)).param == param


@pytest.mark.parametrize(
    ("surface", "data", "param"),
    [
        (Surface.CHAT, b'{"messages":[{"role":"user","content":"x"}]}', "model"),
        (Surface.CHAT, b'{"model":"","messages":[{"role":"user"}]}', "model"),
        (Surface.CHAT, b'{"model":7,"messages":[{"role":"user"}]}', "model"),
        (Surface.CHAT, b'{"model":"m"}', "messages"),
        (Surface.CHAT, b'{"model":"m","messages":"hi"}', "messages"),
        (Surface.CHAT, b'{"model":"m","messages":[]}', "messages"),
        (Surface.CHAT, b'{"model":"m","messages":["hi"]}', "messages[0]"),
        (Surface.CHAT, b'{"model":"m","messages":[{"content":"x"}]}', "messages[0].role"),
        (
            Surface.CHAT,
            b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":1}]}]}',
            "messages[0].content[0].text",
        ),
        (Surface.EMBEDDINGS, b'{"model":"e"}', "input"),
        (Surface.EMBEDDINGS, b'{"model":"e","input":[]}', "input"),
        (Surface.EMBEDDINGS, b'{"model":"e","input":["a",1]}', "input[1]"),
        (Surface.EMBEDDINGS, b'{"model":"e","input":[1,"a"]}', "input[1]"),
        (Surface.EMBEDDINGS, b'{"model":"e","input":[[1],[1.5]]}', "input[1][0]"),
        (Surface.COMPLETIONS, b'{"model":"m","prompt":{}}', "prompt"),
        (Surface.RESPONSES, b'{"input":"x"}', "model"),
        (Surface.RESPONSES, b'{"model":"m","input":7}', "input"),
        (Surface.RESPONSES, b'{"model":"m","input":["x"]}', "input[0]"),
    ],
)
def test_wrong_or_missing_member_names_the_field(surface, data, param):
    error = refusal(surface, data)
    assert error.param == param
    assert param in error.message


@pytest.mark.parametrize("given", ['"one"', '["a","b"]', "[1,2,3]", "[[1,2],[3]]"])
def test_every_form_of_embedding_input_is_let_in(given):
    data = f'{{"model":"e","input":{given}}}'.encode()
    assert wire.decode(Surface.EMBEDDINGS, data).fields["input"] == json.loads(given)


def test_responses_request_may_leave_the_model_to_a_stored_prompt():
    assert wire.decode(Surface.RESPONSES, b'{"prompt":{"id":"p"}}').view.model == ""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'"text"',
        b"null",
        b"{",
        b"{}x",
        b"\xef\xbb\xbf{}",
        '{"model":"m"}'.encode("utf-16"),
        body(b'"x":NaN'),
        body(b'"x":Infinity'),
        body(b'"x":"\xff"'),
        body(b'"x":"\xed\xa0\x80"'),
        body(b'"x":"\\ud800"'),
        body(b'"x":1e400'),
        body(b'"x":-1e400'),
        body(b'"x":1e-400'),
        body(b'"x":' + b"9" * 5000),
        body(b'"x":"' + b"\n" + b'"'),
    ],
)
def test_what_is_not_exact_json_is_refused(data):
    refusal(Surface.CHAT, data)


def test_malformed_json_is_reported_with_its_place():
    assert "byte 12" in refusal(Surface.CHAT, b'{"model":"m"]').message


@pytest.mark.parametrize("opener", [b"[", b'{"a":'])
@pytest.mark.parametrize("depth", [200, 900, 100_000])
@pytest.mark.parametrize("before", [b"", b'"\\u003a":0, '])
def test_deep_nesting_is_refused_however_deep_it_is(opener, depth, before):
    closer = b"]" if opener == b"[" else b"}"
    data = body(before + b'"x":' + opener * depth + b"1" + closer * depth)
    assert "nested" in refusal(Surface.CHAT, data).message


def test_nesting_of_every_real_request_is_let_in():
    data = body(b'"x":' + b"[" * 100 + b"]" * 100)
    assert wire.decode(Surface.CHAT, data).body == data


@pytest.mark.parametrize(
    "rest",
    [
        b'"model":"other"',
        b'"m\\u006fdel":"other"',
        b'"x":{"a":1,"a":1}',
        b'"x":[{"a":{"b":1},"a":{"b":1}}]',
        b'"x":{"a":"\\u003a","a":""}',
        b'"x":{"\\u003A":1,"a":1,"a":"::"}',
        b' "x" : {"a": ":", "a": "::"}',
    ],
)
def test_member_that_occurs_twice_is_refused_at_any_depth(rest):
    assert refusal(Surface.CHAT, body(rest)).code == "duplicate_member"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(value=JSON, ascii_only=st.booleans(), indent=st.sampled_from([None, 0, 3]))
def test_valid_body_is_never_taken_for_one_with_duplicates(value, ascii_only, indent):
    request = {"model": "m", "messages": [{"role": "user", "content": "a:b"}], "x": value}
    text = json.dumps(request, ensure_ascii=ascii_only, indent=indent)
    assert wire.decode(Surface.CHAT, text.encode()).fields == request


@given(inner=st.dictionaries(st.text(), JSON, min_size=1, max_size=4), data=st.data())
def test_repeated_member_is_always_noticed(inner, data):
    name = data.draw(st.sampled_from(sorted(inner)))
    pairs = [f"{json.dumps(k)}:{json.dumps(v)}" for k, v in inner.items()]
    pairs.insert(
        data.draw(st.integers(0, len(pairs))), f"{json.dumps(name)}: {data.draw(JSON_TEXT)}"
    )
    refusal(Surface.CHAT, body(b'"x":{' + ",".join(pairs).encode() + b"}"))


JSON_TEXT = JSON.map(json.dumps)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data):
    for surface in Surface:
        try:
            wire.decode(surface, data)
        except ClientError as error:
            assert error.status == 400


def test_big_integers_stay_exact():
    one = wire.decode(Surface.CHAT, body(b'"x":123456789012345678901234567890'))
    other = wire.decode(Surface.CHAT, body(b'"x":123456789012345678901234567891'))
    assert one.fields != other.fields


def test_body_without_our_controls_is_forwarded_as_it_came():
    data = b'{ "messages" : [{"role":"user","content":"\\u0068i"}],\n"model":"m", "t": 1.50 }'
    assert wire.decode(Surface.CHAT, data).body is data


def test_our_cache_object_is_taken_out_and_the_rest_stays_byte_for_byte():
    decoded = wire.decode(Surface.CHAT, body(b'"cache":{"ttl":5}, "t": 1.50,"u":"\\u0068"'))
    assert decoded.cache == {"ttl": 5}
    assert "cache" not in decoded.fields
    assert decoded.body == b"{" + CHAT + b',"t":1.50,"u":"\\u0068"}'


def test_edit_replaces_adds_and_removes_without_touching_the_rest():
    raw = wire.members(body(b'"a": 1.50 ,"b":{"x" : 1}'))
    edited = wire.edit(raw, remove=("b",), replace={"model": b'"n"', "z": b"[1]"})
    assert edited == b'{"model":"n","messages":[{"role":"user","content":"hi"}],"a":1.50,"z":[1]}'


@pytest.mark.parametrize(
    ("rest", "stream", "include_usage"),
    [
        (b'"stream":true', True, False),
        (b'"stream":true,"stream_options":{"include_usage":true}', True, True),
        (b'"stream":null,"stream_options":null', False, False),
        (b'"x":1', False, False),
    ],
)
def test_stream_and_usage_wishes_are_read(rest, stream, include_usage):
    decoded = wire.decode(Surface.CHAT, body(rest))
    assert (decoded.stream, decoded.include_usage) == (stream, include_usage)
