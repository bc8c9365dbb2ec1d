"""What of a request model servers keep in their prefix caches: how its prompt begins."""

from collections.abc import Iterator

import msgspec

PREFIX_BYTES = 1024
"""So much decides. A long system prompt thus brings all its requests to one server; under a short
one each conversation keeps to its own."""


def prefix_of(body: bytes) -> bytes:
    """The beginning of the prompt, at most `PREFIX_BYTES`: instructions, then messages up to the
    first of the user, so that a conversation stays where it began. Empty where there is none."""
    try:
        view = _VIEW.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return b""
    whole = b"\n".join(
        (bytes(view.instructions), *_first_turns(view.messages), bytes(view.prompt),
         *_first_turns(view.input))
    )  # fmt: skip
    return whole.strip()[:PREFIX_BYTES]


class _View(msgspec.Struct):
    messages: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()


class _Turn(msgspec.Struct):
    role: str | None = None


def _first_turns(raw: msgspec.Raw) -> Iterator[bytes]:
    """Turns up to the first of the user, as they are written; what is no list of turns, whole."""
    try:
        turns = _TURNS.decode(raw)
    except msgspec.DecodeError:
        yield bytes(raw)
        return
    for turn in turns:
        yield bytes(turn)
        try:
            role = _TURN.decode(turn).role
        except msgspec.DecodeError:
            return
        if role == "user":
            return


_VIEW = msgspec.json.Decoder(_View)
_TURNS = msgspec.json.Decoder(list[msgspec.Raw])
_TURN = msgspec.json.Decoder(_Turn)
