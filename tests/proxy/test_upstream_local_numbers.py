"""What the engine's messages have no room for is refused by the name of its field."""

import json
from typing import Any

import pytest

from proxy.errors import ClientError
from proxy.upstreams.local.ask import chat_request, response_request
from proxy.upstreams.local.request import decode_chat, decode_completion
from proxy.upstreams.local.response_body import decode_response

HUGE = 2**70
ASKED = {"messages": [{"role": "user", "content": "x"}]}


def _called(arguments: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    call = {"id": "1", "type": "function", "function": function}
    return {"messages": [{"role": "assistant", "tool_calls": [call]}]}


DEEP = '{"a":' * 129 + "1" + "}" * 129
ENUM = {"type": "json_schema", "json_schema": {"schema": {"enum": [HUGE]}}}
FUNCTION = {"name": "f", "parameters": {"properties": {"a": {"const": HUGE}}}}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"seed": HUGE}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"max_tokens": HUGE}, "max_tokens"),
        ({"logit_bias": {str(HUGE): 1}}, "logit_bias"),
        ({"long_context": {"mode": "window", "window": 2**64}}, "long_context"),
        ({"tools": [{"type": "function", "function": FUNCTION}]}, "tools"),
        ({"response_format": ENUM}, "response_format"),
        (_called(f'{{"a": [{HUGE}]}}'), "messages[0].tool_calls[0].function.arguments"),
        (_called(DEEP), "messages[0].tool_calls[0].function.arguments"),
        (_called('{"a":' * 5000), "messages[0].tool_calls[0].function.arguments"),
    ],
)
def test_a_chat_beyond_measure_is_refused(change: dict[str, Any], param: str) -> None:
    with pytest.raises(ClientError) as refused:
        chat_request(decode_chat(json.dumps(ASKED | change).encode()))
    assert (refused.value.status, refused.value.param) == (400, param)


def test_a_token_id_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ClientError) as refused:
        decode_completion(json.dumps({"prompt": [2**64]}).encode())
    assert (refused.value.status, refused.value.param) == (400, "prompt")


@pytest.mark.parametrize("arguments", [DEEP, f'{{"a": {-HUGE}}}'])
def test_calls_in_the_input_of_a_response_are_held_to_the_same(arguments: str) -> None:
    item = {"type": "function_call", "call_id": "1", "name": "f", "arguments": arguments}
    with pytest.raises(ClientError) as refused:
        response_request(decode_response(json.dumps({"input": [item]}).encode()))
    assert (refused.value.status, refused.value.param) == (400, "input[0].arguments")


def test_what_fits_and_long_digits_in_text_are_let_through() -> None:
    body = {"messages": [{"role": "user", "content": "9" * 30}], "seed": 2**63 - 1}
    assert chat_request(decode_chat(json.dumps(body).encode())).sampling.seed == 2**63 - 1
    request = chat_request(decode_chat(json.dumps(_called(f'{{"a": {2**64 - 1}}}')).encode()))
    assert request.messages is not None
    assert request.messages[0].tool_calls[0].arguments == {"a": 2**64 - 1}
