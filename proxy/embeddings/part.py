"""The part of an answer that belongs to one input, and answers put together from parts.

A part is kept as an answer of its own, in OpenAI's JSON, to a request with that one input.

`usage`: an upstream counts a whole batch. Its count is divided over the inputs, exactly for token
ids, by length for texts, so that the shares add up to it; an answer made of parts adds up theirs.
The same batch again thus reports what it reported, and one input alone what it cost in its batch.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw

from proxy.answer.grammar import READ_FAULTS, is_set, read_usage
from proxy.call import Headers
from proxy.embeddings.vector import as_base64, as_floats, kept

Encoding = Literal["float", "base64"]

_MADE_AGAIN = frozenset({"data", "usage"})


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One vector and what the upstream said around it, each member as it was written."""

    vector: Raw
    """As `proxy.embeddings.vector.kept`."""
    item: dict[str, Raw]
    """Other members of its item of `data`."""
    top: dict[str, Raw]
    """Other members of the answer: `object`, `model` and what we do not know."""
    usage: Raw
    """Its own share; empty when the upstream did not count."""
    model: str
    upstream: str
    """Who answered."""
    headers: Headers = ()
    """The response headers that were kept with it."""


def parts_of(body: bytes, inputs: Sequence[Any], *, upstream: str) -> tuple[Part, ...] | None:
    """The parts of a whole answer, in the order of `inputs`; None when it is not one vector for
    each of them."""
    try:
        top = _MEMBERS.decode(body)
        answer = _ANSWER.decode(body)
    except READ_FAULTS:
        return None
    if is_set(answer.error) or len(answer.data) != len(inputs):
        return None
    ordered = _in_order(answer.data)
    if ordered is None:
        return None
    vectors = [kept(item.get("embedding", Raw(b"null"))) for item in ordered]
    usages = _shares(top.get("usage", Raw()), inputs)
    said = {name: raw for name, raw in top.items() if name not in _MADE_AGAIN}
    parts = tuple(
        Part(
            vector=vector,
            item={k: v for k, v in item.items() if k not in ("embedding", "index")},
            top=said,
            usage=usage,
            model=answer.model or "",
            upstream=upstream,
        )
        for vector, item, usage in zip(vectors, ordered, usages, strict=True)
        if vector is not None
    )
    return parts if len(parts) == len(inputs) else None


def answer_of(parts: Sequence[Part], encoding: Encoding) -> bytes:
    """The answer to a request for these parts, one or more; the last one's words stand around."""
    spell = as_base64 if encoding == "base64" else as_floats
    data = [
        {**part.item, "index": index, "embedding": spell(part.vector)}
        for index, part in enumerate(parts)
    ]
    usage = _total(parts)
    around = parts[-1].top
    return msgspec.json.encode({**around, "data": data} | ({"usage": usage} if usage else {}))


def alone(part: Part) -> bytes:
    """The form in which a part is kept."""
    items = [{**part.item, "index": 0, "embedding": part.vector}]
    usage = {"usage": part.usage} if part.usage else {}
    return msgspec.json.encode({**part.top, "data": items} | usage)


def read(body: bytes, *, upstream: str, headers: Headers) -> Part | None:
    """A part as `alone` made it. Not judged again: its checksum was."""
    try:
        top = _MEMBERS.decode(body)
        answer = _ANSWER.decode(body)
    except READ_FAULTS:
        return None
    if len(answer.data) != 1 or "embedding" not in answer.data[0]:
        return None
    item = answer.data[0]
    return Part(
        vector=item.pop("embedding"),
        item={name: raw for name, raw in item.items() if name != "index"},
        top={name: raw for name, raw in top.items() if name not in _MADE_AGAIN},
        usage=top.get("usage", Raw()),
        model=answer.model or "",
        upstream=upstream,
        headers=headers,
    )


class _Answer(msgspec.Struct):
    data: list[dict[str, Raw]] = []
    model: str | None = None
    error: Raw = Raw()


def _in_order(data: list[dict[str, Raw]]) -> list[dict[str, Raw]] | None:
    """Items by their `index`; as they came where none has one."""
    if not any("index" in item for item in data):
        return data
    try:
        by_index = {_INDEX.decode(item.get("index", b"null")): item for item in data}
    except READ_FAULTS:
        return None
    if sorted(by_index) != list(range(len(data))):
        return None
    return [by_index[index] for index in range(len(data))]


def _shares(usage: Raw, inputs: Sequence[Any]) -> list[Raw]:
    counted = read_usage(usage) if usage else None
    if counted is None:
        return [Raw()] * len(inputs)
    if len(inputs) == 1:
        return [usage]
    weights = [len(one) + isinstance(one, str) for one in inputs]
    if not sum(weights):
        weights = [1] * len(inputs)
    shares, given, so_far = [], 0, 0
    for weight in weights:
        so_far += weight
        upto = counted.input_tokens * so_far // sum(weights)
        shares.append(_spelled(upto - given))
        given = upto
    return shares


def _total(parts: Sequence[Part]) -> Raw | None:
    """None when no upstream counted."""
    known = [part.usage for part in parts if part.usage]
    if len(parts) == 1 or not known:
        return known[0] if known else None
    counts = [read_usage(usage) for usage in known]
    return _spelled(sum(count.input_tokens for count in counts if count is not None))


def _spelled(tokens: int) -> Raw:
    return Raw(b'{"prompt_tokens":%d,"total_tokens":%d}' % (tokens, tokens))


_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ANSWER = msgspec.json.Decoder(_Answer)
_INDEX = msgspec.json.Decoder(int)
