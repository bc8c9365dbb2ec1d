"""The words in which the request path gives its reasons, in sentences."""

from collections.abc import Mapping

from index.demand import Kind

_OF_WORDS = {
    "no_policy": "the route has `cache: none`",
    "no_store": "the request says no-store",
    "no_cache": "the request asks for a new answer",
    "ttl_zero": "the TTL is 0, so the answer is not kept",
    "temperature": "the policy is for requests with less randomness",
    "web_search": "the answer comes from a search of the web",
    "hosted_tools": "a tool runs at the provider and reads the world",
    "conversation": "the provider remembers what the request only points at",
    "previous_response_id": "the provider remembers what the request only points at",
    "background": "the answer is made in the background",
    "item_reference": "the provider remembers what the request only points at",
    "encoding_format": "embeddings in a spelling that cannot be converted",
    "strip_slow": "what the policy strips took too long to find",
    "tag_invalid": "a tag is not in the grammar of tags",
    "tags_too_many": "there are more tags than an answer may carry",
    "tag_rule_slow": "a tag rule of the policy took too long",
    "semantic_off": "the request asks for exact answers only",
    "surface": "only chat and responses are matched by meaning",
    "structured_output": "the answer has a given structure: exact only",
    "logprobs": "log probabilities are asked for: exact only",
    "several_choices": "several answers are asked for: exact only",
    "tool_choice": "a tool is demanded: exact only",
    "audio": "the request has audio: exact only",
    "image": "the request has an image: exact only",
    "file": "the request has a file: exact only",
    "tool_turn": "the last message is a tool's: exact only",
    "no_user_text": "no text of a user to match by meaning",
    "empty_text": "the user's text is empty",
    "long_text": "the user's text is too long to be matched by meaning",
    "absent": "nothing is stored under this key",
    "expired": "the stored answer is past its time",
    "max_age": "the stored answer is older than the request allows",
    "purged": "the stored answer was purged",
    "soft_purged": "the stored answer was softly purged: only stale rules may serve it",
    "lacks_tag": "the stored answer does not carry a tag that this request names",
    "key_collision": "another request has the same key",
    "vary": "the stored answer varies by a header that says something else here",
    "store_fault": "the store failed",
    "fresh": "it may be served",
    "stale": "past its time, but within a stale rule",
    "off": "no embedder is loaded",
    "empty": "the embedder can read nothing in the text",
    "script": "the embedder cannot read this script",
    "too_long": "the text is longer than the embedder reads",
    "unreadable": "the embedder takes signs or words of the text for others",
    "fault": "the embedder failed",
    "embedder_late": "the embedding came after the policy's deadline",
    "semantic_fault": "the search by meaning failed",
    "no_candidate": "nothing in the scope is near",
    "tier_unknown": "the audits' counters are not read yet",
    "tier_tightened": "audits ask for more similarity than it has",
    "tier_closed": "audits found too many wrong answers by meaning",
    "tier_shadow": "it is not proven yet that few answers by meaning are wrong",
    "known_wrong": "the two were found not to share an answer",
    "replaced": "the stored question has been replaced meanwhile",
    "similarity": "the two are not similar enough",
    "content": "a word has no counterpart, and the two are not similar enough for that",
    "word_order": "the same words in another order",
    "own_rule": "a rule of the policy keeps the two apart",
}


DEMANDS: Mapping[Kind, str] = {
    "slip": "the two are one text, mistyped",
    "same": "every word has its counterpart",
    "added": "one has a word more",
    "narrowed": "one has a word more, and it is the last one",
    "decided": "in a question of yes or no, or between rare words, every word decides",
    "exchanged": "a word stands for another one",
    "reworded": "both have words of their own",
    "reordered": "what they have in common stands in another order",
}
"""Why a similarity is asked for."""


def meaning_of(word: str) -> str:
    """A sentence for a reason; of a guard, that it refused."""
    if word in _OF_WORDS:
        return _OF_WORDS[word]
    kind, _, what = word.partition(":")
    if kind == "volatile":
        return f"the answer changes by itself ({what})"
    if kind == "personal":
        return f"the answer is each person's own ({what})"
    if word.startswith("shadow-"):
        return f"the route only looks: it would have been {word.removeprefix('shadow-')}"
    return f"the two differ in: {word.replace('_', ' ')}"
