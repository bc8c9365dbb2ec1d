"""What an answer depends on: the tags of its request, of the policy's rules and of the upstream.

An answer is kept with all of its tags or not at all: where they cannot be told, the result is
`Untaggable`, with the reason.
"""

from collections.abc import Iterator, Sequence

import msgspec
import regex  # type: ignore[import-untyped]  # no stubs are published with it

from index import tags
from index.errors import InvalidTag
from proxy.call import Call, Headers
from proxy.request.budget import Budget
from proxy.request.conversation import system_text
from proxy.request.material import documents, tool_calls
from proxy.request.sources import sources
from proxy.settings.config import TagRule
from proxy.settings.glob import compile_globs

_READERS = {
    b"cache-tag": tags.parse,
    b"surrogate-key": tags.parse_surrogate_keys,
    b"cache-groups": tags.parse_cache_groups,
}


class Tagged(msgspec.Struct, frozen=True, kw_only=True):
    """All tags, sorted, each once."""

    tags: tuple[str, ...]


class Untaggable(msgspec.Struct, frozen=True, kw_only=True):
    """Not all tags are known. `reason`: `tag_invalid`, `tags_too_many`, `tag_rule_slow`."""

    reason: str


class TagRules:
    """The tag rules of one policy, compiled. Has no state: safe to share."""

    def __init__(self, rules: Sequence[TagRule]) -> None:
        self._headers = tuple(
            (rule.header.lower().encode("latin-1"), rule.prefix)
            for rule in rules
            if rule.header is not None
        )
        self._patterns = tuple(
            (regex.compile(rule.pattern), rule.tag) for rule in rules if rule.pattern is not None
        )
        self._tools = tuple(
            (compile_globs(rule.tool), rule.argument, rule.prefix)
            for rule in rules
            if rule.tool is not None
        )
        self._documents = tuple(rule.prefix for rule in rules if rule.documents)
        self._is_empty = not rules

    def tags_of(self, call: Call) -> Tagged | Untaggable:
        """The tags that the request names by itself, and those that the rules find in it."""
        if self._is_empty:
            return Tagged(tags=call.directives.tags)
        try:
            found = [
                *self._in_headers(call.headers),
                *self._in_texts(call),
                *self._in_tools(call),
                *self._in_documents(call),
            ]
        except TimeoutError:
            return Untaggable(reason="tag_rule_slow")
        return _tagged(call.directives.tags, found)

    def _in_headers(self, headers: Headers) -> Iterator[str]:
        for wanted, prefix in self._headers:
            for name, value in headers:
                if name == wanted:
                    members = (member.strip() for member in value.split(b","))
                    yield from (prefix + tags.text_of(member) for member in members if member)

    def _in_texts(self, call: Call) -> Iterator[str]:
        if not self._patterns:
            return
        budget = Budget()
        for text in sources(call.surface, call.fields):
            for pattern, tag in self._patterns:
                for match in pattern.finditer(text, timeout=budget.left_s()):
                    yield match.expand(tag)

    def _in_tools(self, call: Call) -> Iterator[str]:
        for made in tool_calls(call.surface, call.fields) if self._tools else ():
            for name, argument, prefix in self._tools:
                if name.fullmatch(made.name):
                    values = (made.name,) if argument is None else made.values(argument)
                    yield from (prefix + value for value in values)

    def _in_documents(self, call: Call) -> Iterator[str]:
        if self._documents:
            for document in documents(call.surface, call.fields):
                yield from (prefix + document for prefix in self._documents)


def implicit_tags(
    call: Call, *, route: str, policy_name: str, model: str, subjects: Sequence[str] = ()
) -> tuple[str, ...]:
    """What every answer to this request depends on. `model` is the one asked for; the one that
    answered adds its own tag (`index.tags.model_tag`). `subjects`: digests of users."""
    found = [
        tags.route_tag(route),
        tags.policy_tag(policy_name),
        tags.tenant_tag(call.caller.tenant),
        tags.model_tag(model),
        *map(tags.subject_tag, subjects),
    ]
    system = system_text(call.surface, call.fields)
    if system:
        found.append(tags.system_tag(system))
    return tags.union(found)


def response_tags(headers: Headers) -> Tagged | Untaggable:
    """The tags that an upstream names in its answer: `Cache-Tag`, `Surrogate-Key`, and
    `Cache-Groups` (RFC 9875)."""
    found: list[str] = []
    for name, value in headers:
        if name in _READERS:
            try:
                found += _READERS[name](value)
            except InvalidTag:
                return Untaggable(reason="tag_invalid")
    return _tagged((), found)


def _tagged(known: Sequence[str], found: Sequence[str]) -> Tagged | Untaggable:
    if not found:
        return Tagged(tags=tuple(known))
    try:
        encoded = tags.union(known, (tags.encode(value) for value in found if value))
    except InvalidTag:
        return Untaggable(reason="tag_invalid")
    if len(encoded) > tags.MAX_TAGS:
        return Untaggable(reason="tags_too_many")
    return Tagged(tags=encoded)
