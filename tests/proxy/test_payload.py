import msgspec
import pytest

from proxy.answer.payload import FORMAT_VERSION, Payload, decode, encode
from proxy.call import Surface, Usage

PAYLOAD = Payload(
    surface=Surface.CHAT,
    headers=((b"openai-version", b"2020-10-01"),),
    frames=b'data: {"choices":[]}\n\n',
    usage_frame=b'data: {"choices":[],"usage":{}}\n\n',
    usage=Usage(input_tokens=1, output_tokens=2),
    usage_known=True,
    model="m",
    has_tool_calls=False,
)


def test_a_stored_payload_is_read_back_as_it_was() -> None:
    assert decode(encode(PAYLOAD)) == PAYLOAD
    assert PAYLOAD.streamed


def test_any_changed_byte_makes_a_payload_unreadable() -> None:
    stored = encode(PAYLOAD)
    for place in range(len(stored)):
        damaged = bytearray(stored)
        damaged[place] ^= 0x01
        assert decode(bytes(damaged)) is None


@pytest.mark.parametrize("length", [0, 1, 4, 5, 20, -1])
def test_a_cut_payload_is_not_read(length: int) -> None:
    assert decode(encode(PAYLOAD)[:length]) is None


def test_another_version_is_not_read() -> None:
    stored = encode(PAYLOAD)
    assert decode(bytes((FORMAT_VERSION + 1,)) + stored[1:]) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"frames": b""},
        {"frames": b'data: {"choices":[]}'},
        {"body": b"{}"},
        {"surface": Surface.EMBEDDINGS},
    ],
)
def test_a_payload_that_is_not_one_whole_answer_is_not_read(changes: dict[str, object]) -> None:
    assert decode(encode(msgspec.structs.replace(PAYLOAD, **changes))) is None
