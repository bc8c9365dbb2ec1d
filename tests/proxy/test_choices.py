import msgspec
import pytest

from proxy.call import Call, Caller, Directives, Surface
from proxy.request.choices import num_choices

CALL = Call(
    request_id="r",
    caller=Caller(tenant="t", credential_id="c"),
    surface=Surface.CHAT,
    path="/chat/completions",
    query=b"",
    headers=(),
    credential=None,
    body=b"",
    fields={},
    model="m",
    stream=False,
    include_usage=False,
    directives=Directives(),
    received_at=0.0,
)


@pytest.mark.parametrize(
    ("surface", "fields", "expected"),
    [
        (Surface.CHAT, {}, 1),
        (Surface.CHAT, {"n": None}, 1),
        (Surface.CHAT, {"n": 3}, 3),
        (Surface.CHAT, {"n": 0}, None),
        (Surface.CHAT, {"n": "2"}, None),
        (Surface.CHAT, {"n": True}, None),
        (Surface.COMPLETIONS, {"prompt": "a"}, 1),
        (Surface.COMPLETIONS, {"prompt": [1, 2, 3]}, 1),
        (Surface.COMPLETIONS, {"prompt": ["a", "b", "c"]}, 3),
        (Surface.COMPLETIONS, {"prompt": [[1], [2, 3]], "n": 2}, 4),
        (Surface.COMPLETIONS, {"prompt": ["a"], "n": -1}, None),
        (Surface.RESPONSES, {"n": 2}, 1),
    ],
)
def test_choices_are_asked_for_by_prompt_and_n(surface, fields, expected):
    call = msgspec.structs.replace(CALL, surface=surface, fields=fields)
    assert num_choices(call) == expected
