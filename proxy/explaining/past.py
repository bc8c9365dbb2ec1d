"""Why a request that went through became what it did. Pure."""

import msgspec

from index.verdict import Rules
from proxy.explaining.meanings import meaning_of
from proxy.explaining.nearness import nearness
from proxy.explaining.views import NearView, Past, Reason
from proxy.observing.seen import Seen
from proxy.outcome import Near


def past_of(seen: Seen, *, prompt: str, rules: Rules | None) -> Past:
    """`prompt`: what the request was matched by; `rules`: of its policy, as they are now."""
    return Past(
        reasons=tuple(Reason(word=word, meaning=meaning_of(word)) for word in seen.reasons),
        # Of a question that was erased since nothing can be said but that there was one.
        near=tuple(_refused(prompt, one, rules) for one in seen.near if rules and one.prompt),
    )


def _refused(prompt: str, near: Near, rules: Rules) -> NearView:
    """With the reason of that time, whatever the rules would say now."""
    view = nearness(
        prompt, key=near.key, prompt=near.prompt, similarity=near.similarity, rules=rules
    )
    meaning = meaning_of(near.reason)
    return msgspec.structs.replace(view, accepted=False, reason=near.reason, meaning=meaning)
