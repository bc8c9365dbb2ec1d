"""Whether a request may be answered from the cache, kept in it, matched by meaning; and why not.

The reasons are the words that reach `Cache-Status`, the metrics and `explain`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from proxy.call import Call, Directives, Surface
from proxy.request.conversation import last_user_text, last_user_words, turns
from proxy.settings.config import Policy

LONGEST_TEXT_CHARS = 4_000
"""Longer user texts are not matched by meaning. Embedders read a few hundred tokens and refuse more
by themselves; this keeps long documents from getting that far."""

_CLIENT_TOOLS = frozenset({"function", "custom", "local_shell", "apply_patch"})
"""Tools that the client runs. Any other kind runs at the provider and reads the world."""

_ENCODINGS = (None, "float", "base64")
"""Spellings of embeddings that can be put into each other."""

_DEFAULT_TEMPERATURE = 1.0
"""Of OpenAI's API."""

_WITH_TOOLS = frozenset({Surface.CHAT, Surface.RESPONSES})
_LOGPROBS = "message.output_text.logprobs"
_MEDIA = {"image_url": "image", "input_image": "image", "input_audio": "audio", "file": "file",
          "input_file": "file"}  # fmt: skip


class Eligibility(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache may do with a request.

    `semantic`: its answer may be found by meaning, and found again. It says nothing of `read`.
    """

    read: bool
    write: bool
    semantic: bool
    reasons: tuple[str, ...] = ()
    """Why not all of it, the gravest first."""


def judge(
    call: Call, policy: Policy | None, *, volatile: Callable[[str], str | None]
) -> Eligibility:
    """Judge a request by itself; whether its answer may be kept is decided when it is there.

    `volatile` gives the reason why a text asks for something that changes or is personal, or None.
    It counts on policies that answer by meaning, unless the request itself names a TTL.
    """
    if policy is None:
        return Eligibility(read=False, write=False, semantic=False, reasons=("no_policy",))
    bars = tuple(_bars(call, policy, volatile))
    if bars:
        return Eligibility(read=False, write=False, semantic=False, reasons=bars)
    directives = call.directives
    write = (policy.ttl if directives.ttl_s is None else directives.ttl_s) > 0
    reasons = ["no_cache"] if directives.no_cache else []
    if not write:
        reasons.append("ttl_zero")
    unlike = [] if policy.semantic is None else list(_exact_only(call))
    return Eligibility(
        read=not directives.no_cache,
        write=write,
        semantic=policy.semantic is not None and not unlike,
        reasons=(*reasons, *unlike),
    )


def _bars(call: Call, policy: Policy, volatile: Callable[[str], str | None]) -> Iterator[str]:
    """What keeps the cache out of it altogether."""
    if call.directives.no_store:
        yield "no_store"
    fields = call.fields
    if call.surface is Surface.RESPONSES:
        yield from _server_state(fields)
    if call.surface is Surface.EMBEDDINGS and fields.get("encoding_format") not in _ENCODINGS:
        yield "encoding_format"
    if call.surface in _WITH_TOOLS:
        if fields.get("web_search_options") is not None:
            yield "web_search"
        kinds = (tool.get("type") or "function" for tool in fields.get("tools") or ())
        if not _CLIENT_TOOLS.issuperset(kinds):
            yield "hosted_tools"
    if _is_too_random(call, policy.when.temperature_at_most):
        yield "temperature"
    if (policy.semantic is not None or policy.never) and not _names_ttl(call.directives):
        reason = volatile(last_user_words(call.surface, fields))
        if reason is not None and _is_barred(reason, policy):
            yield reason


def _is_too_random(call: Call, most: float | None) -> bool:
    if most is None or call.surface is Surface.EMBEDDINGS:
        return False
    temperature = call.fields.get("temperature")
    return bool((_DEFAULT_TEMPERATURE if temperature is None else temperature) > most)


def _is_barred(reason: str, policy: Policy) -> bool:
    """`reason` is of a kind, `volatile:…` or `personal:…`, that the policy does not keep."""
    return policy.semantic is not None or reason.partition(":")[0] in policy.never


def _server_state(fields: dict[str, Any]) -> Iterator[str]:
    """What the provider remembers and the request only points at."""
    for name in ("conversation", "previous_response_id"):
        if fields.get(name) is not None:
            yield name
    if fields.get("background") is True:
        yield "background"
    items = fields.get("input")
    if isinstance(items, list) and any(item.get("type") == "item_reference" for item in items):
        yield "item_reference"


def _names_ttl(directives: Directives) -> bool:
    return directives.ttl_s is not None and directives.ttl_s > 0


def _exact_only(call: Call) -> Iterator[str]:
    """Why a request cannot be matched by meaning, on a policy that does so."""
    if not call.directives.semantic:
        yield "semantic_off"
    if call.surface not in _WITH_TOOLS:
        yield "surface"
        return
    yield from _exact_parameters(call.surface, call.fields)
    yield from _exact_turns(call)


def _exact_parameters(surface: Surface, fields: dict[str, Any]) -> Iterator[str]:
    on_chat = surface is Surface.CHAT
    form = fields.get("response_format") if on_chat else (fields.get("text") or {}).get("format")
    if form is not None and (form.get("type") or "text") != "text":
        yield "structured_output"
    wanted = fields.get("logprobs") if on_chat else _LOGPROBS in (fields.get("include") or ())
    if wanted or fields.get("top_logprobs"):
        yield "logprobs"
    if on_chat and (fields.get("n") or 1) > 1:
        yield "several_choices"
    if fields.get("tool_choice") not in (None, "auto", "none"):
        yield "tool_choice"
    if on_chat and "audio" in (fields.get("modalities") or ()):
        yield "audio"


def _exact_turns(call: Call) -> Iterator[str]:
    last = ""
    media: dict[str, None] = {}
    for turn in turns(call.surface, call.fields):
        last = turn.role
        media |= dict.fromkeys(_MEDIA[kind] for kind in turn.others if kind in _MEDIA)
    yield from media
    if last == "tool":
        yield "tool_turn"
        return
    text = last_user_text(call.surface, call.fields)
    if text is None:
        yield "no_user_text"
    elif not text.strip():
        yield "empty_text"
    elif len(text) > LONGEST_TEXT_CHARS:
        yield "long_text"
