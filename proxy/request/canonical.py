"""The canonical form of a request: equal bytes exactly where the upstream is asked the same.

Order of keys, white space, escapes and the spelling of numbers do not count (the last is settled in
decoding, see `proxy.request.wire`); order of arrays does. Nothing else is folded here.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from proxy.call import Surface

OMITTED: dict[str, str] = {
    "stream": "one entry serves both forms",
    "stream_options": "what it asks for is added or stripped on replay",
    "user": "names who asks, for the provider's abuse checks",
    "metadata": "labels of the client's, stored and not read",
    "safety_identifier": "names who asks, for the provider's abuse checks",
    "prompt_cache_key": "steers the provider's own prompt cache",
    "service_tier": "how fast and at what price, not what is answered",
}
"""Fields that do not count, each with the reason. A policy can put them back."""

OMITTED_ON_CHAT: dict[str, str] = OMITTED | {
    "store": "whether the provider logs it; on the Responses API others can refer to it later",
}

OMITTED_ON_EMBEDDINGS: dict[str, str] = OMITTED | {
    "encoding_format": "how numbers are spelled; one entry serves both spellings",
}

NULL_IS_ABSENT: dict[Surface, frozenset[str]] = {
    Surface.CHAT: frozenset({
        "audio", "frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens",
        "max_tokens", "modalities", "n", "prediction", "presence_penalty", "reasoning_effort",
        "seed", "stop", "temperature", "top_logprobs", "top_p", "verbosity",
    }),
    Surface.COMPLETIONS: frozenset({
        "best_of", "echo", "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "n",
        "presence_penalty", "seed", "stop", "suffix", "temperature", "top_p",
    }),
    Surface.EMBEDDINGS: frozenset(),
    Surface.RESPONSES: frozenset({
        "background", "conversation", "include", "instructions", "max_output_tokens",
        "max_tool_calls", "parallel_tool_calls", "previous_response_id", "prompt", "reasoning",
        "store", "temperature", "top_logprobs", "top_p", "truncation",
    }),
}  # fmt: skip
"""Fields for which the API reference declares null and leaving out the same ("nullable")."""

OMITTED_ON: dict[Surface, dict[str, str]] = {
    Surface.CHAT: OMITTED_ON_CHAT,
    Surface.COMPLETIONS: OMITTED,
    Surface.EMBEDDINGS: OMITTED_ON_EMBEDDINGS,
    Surface.RESPONSES: OMITTED,
}
"""Fields that do not count, by surface."""

_ENCODER = msgspec.json.Encoder(order="sorted")


def effective(
    surface: Surface, fields: dict[str, Any], *, model: str, included: Collection[str] = ()
) -> dict[str, Any]:
    """What of a request counts, with the model that the upstream is asked for.

    `included` puts omitted fields back. Nothing is modified.
    """
    omitted, nullable = OMITTED_ON[surface], NULL_IS_ABSENT[surface]
    kept = {
        name: value
        for name, value in fields.items()
        if (name not in omitted or name in included) and (value is not None or name not in nullable)
    }
    if model:
        kept["model"] = model
    return kept


def encode(value: Any) -> bytes:
    """Canonical JSON of what `proxy.request.wire` decoded."""
    return _ENCODER.encode(value)
