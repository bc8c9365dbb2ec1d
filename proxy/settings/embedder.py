"""The config's part on what makes embeddings."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from proxy.settings.default import default
from proxy.settings.units import Secret


class Embedder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What makes embeddings, for answers by meaning: a model in the proxy, or a server's."""

    model: str
    """A path (relative ones count from the current folder), `package:NAME` for an installed package
    that carries the model, or `hf:ORG/NAME` for one of the Hugging Face hub. With `base_url`: the
    name by which the server knows it."""
    base_url: str | None = None
    """Of any OpenAI-compatible embeddings server, as its documentation gives it, mostly with `/v1`.
    While it does not answer, requests find only what was asked in the same words."""
    api_key: Secret = default(Secret())
    """The key for that server."""
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    """Asked of the server; by default as many as the model has."""
    prefix: str | None = None
    """Put before each text, as the model was trained: `"query: "` for E5. By default what the
    model's files say; nothing for a server."""
    scripts: Literal["any"] | tuple[str, ...] | None = None
    """Scripts that the model was trained on, such as `[latin, cyrillic, cjk]`; questions in others
    are only found in the same words. By default what the model's files say; `latin` for a
    server."""
    max_bytes: Annotated[int, Meta(ge=1)] = 1500
    """Longest text that is sent to a server, in UTF-8: servers cut longer ones in silence, and what
    is cut off could be the question. The default fits a window of 512 tokens."""
    threads: Annotated[int, Meta(ge=1)] = 1
    """CPU threads of a model in the proxy."""

    def __post_init__(self) -> None:
        if self.base_url is None:
            if self.api_key or self.dimensions is not None:
                raise ValueError("`api_key` and `dimensions` are for a server: give `base_url`")
        elif not self.base_url.startswith(("http://", "https://")):
            raise ValueError("`base_url` must begin with http:// or https://")
