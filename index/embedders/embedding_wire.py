"""The embeddings request and its answer, as OpenAI's API has them."""

import base64
import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from index.embedders.embedding_server import Server
from index.errors import EmbedderFault, TextRefused

if TYPE_CHECKING:
    from index.embedders.batching import Vectors

_REFUSALS = (400, 413, 422)


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a server."""

    name: str
    dimensions: int | None = None
    """None: as many as the model has."""
    prefix: str = ""
    """Put before each text, as the model was trained."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`vectors`: float32 [num_texts, dimension], of unit length. `model`: the server's word."""

    model: str
    vectors: "Vectors"


class _Embedding(msgspec.Struct, frozen=True):
    index: int
    embedding: str | list[float]


class _Document(msgspec.Struct, frozen=True):
    data: list[_Embedding]
    model: str = ""


_DOCUMENT = msgspec.json.Decoder(_Document)


async def ask(server: Server, model: Model, texts: Sequence[str]) -> Answer:
    """Vectors of `texts`. Raises TextRefused, or EmbedderFault when the server is not well."""
    reply = await server.ask(_body(model, texts))
    if reply.status in _REFUSALS:
        raise TextRefused(f"{server.name} refuses a text with status {reply.status}")
    if reply.status != 200:
        # Not its words: servers repeat keys and texts in them.
        raise EmbedderFault(f"{server.name} answers with status {reply.status}")
    try:
        return _read(reply.body, num_texts=len(texts))
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise EmbedderFault(f"{server.name} answers with no embeddings: {error}") from error


def _body(model: Model, texts: Sequence[str]) -> bytes:
    # base64 is a third of the bytes and a tenth of the work; who does not know it sends numbers.
    asked: dict[str, object] = {"model": model.name, "encoding_format": "base64"}
    if model.dimensions is not None:
        asked["dimensions"] = model.dimensions
    return msgspec.json.encode({**asked, "input": [model.prefix + text for text in texts]})


def _read(body: bytes, *, num_texts: int) -> Answer:
    document = _DOCUMENT.decode(body)
    in_order = sorted(document.data, key=lambda one: one.index)
    if [one.index for one in in_order] != list(range(num_texts)):
        raise ValueError(f"{len(in_order)} embeddings for {num_texts} texts")
    vectors = np.stack([_vector(one.embedding) for one in in_order])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and lengths.all()):
        raise ValueError("an embedding without a direction")
    return Answer(model=document.model, vectors=vectors / lengths)


def _vector(embedding: str | list[float]) -> "Vectors":
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
    return np.asarray(embedding, dtype=np.float32)
