"""What clients get to read of an upstream's errors."""

import json

from proxy.upstreams.base import UpstreamResponse
from proxy.upstreams.body import Buffered
from proxy.upstreams.refusal import MAX_ERROR_BYTES, readable

KEY = b"Bearer sk-secret-0123456789"


async def read(
    body: bytes,
    *headers: tuple[bytes, bytes],
    secret: bytes = KEY.removeprefix(b"Bearer "),
    is_head: bool = False,
) -> tuple[dict[bytes, bytes], bytes]:
    response = UpstreamResponse(upstream="a", status=502, headers=headers, body=Buffered(body))
    answer = await readable(response, secrets=[secret], is_head=is_head)
    assert answer.status == 502
    return dict(answer.headers), b"".join([piece async for piece in answer.body])


async def test_json_stays_as_it_was_written():
    body = b'{"detail" : "no such thing"}'
    headers, out = await read(body, (b"content-type", b"application/json"), (b"x-a", b"b"))
    assert out == body
    assert headers == {
        b"content-type": b"application/json",
        b"content-length": b"28",
        b"x-a": b"b",
    }


async def test_a_page_becomes_an_error_of_openai_s_shape():
    headers, out = await read(b"<html>Bad gateway</html>", (b"content-type", b"text/html"))
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"content-length"] == b"%d" % len(out)
    assert json.loads(out)["error"] == {
        "message": "The upstream answered with status 502 and no more.",
        "type": "upstream_error",
        "param": None,
        "code": None,
    }


async def test_a_short_plain_text_becomes_the_message_and_a_long_one_does_not():
    plain = (b"content-type", b"text/plain; charset=utf-8")
    _, short = await read(b"upstream connect error\n", plain)
    _, long = await read(b"x" * 501, plain)
    assert json.loads(short)["error"]["message"] == "upstream connect error"
    assert json.loads(long)["error"]["message"].startswith("The upstream answered")


async def test_an_empty_or_endless_error_is_replaced():
    _, out = await read(b"[" + b"1," * MAX_ERROR_BYTES)
    assert json.loads(out)["error"]["type"] == "upstream_error"
    _, empty = await read(b"")
    assert json.loads(empty)["error"]["type"] == "upstream_error"


async def test_the_key_that_was_sent_is_cut_out_of_body_and_headers():
    body = b'{"error": {"message": "Incorrect API key: sk-secret-0123456789."}}'
    headers, out = await read(body, (b"www-authenticate", KEY))
    assert json.loads(out)["error"]["message"] == "Incorrect API key: ***."
    assert headers[b"www-authenticate"] == b"Bearer ***"


async def test_a_key_that_is_an_ordinary_word_is_left_where_it_stands():
    _, out = await read(b'{"error": "test failed"}', secret=b"test")
    assert out == b'{"error": "test failed"}'
    _, out = await read(b'{"error": "none"}', secret=b"")
    assert out == b'{"error": "none"}'


async def test_an_answer_to_head_has_its_own_length_and_no_body():
    headers, out = await read(b"", (b"content-length", b"77"), is_head=True)
    assert out == b""
    assert headers == {b"content-length": b"77"}
