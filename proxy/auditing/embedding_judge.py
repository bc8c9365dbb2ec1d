"""Compares two answers by the meaning of what they say, sentence by sentence.

Two answers of one model to one question say much the same in other words, and one of them often
says more. So each sentence of the shorter one is held beside its nearest of the other:

    nothing is like it                                          one of them says more
    near, and a guard tells them apart, or all but a word or    they contradict
    two is the same, or the same words stand in another order
    else                                                        they agree

The answers agree where nothing contradicts and at least half of the shorter one is found in the
other. Code is compared by its letters.

Chosen on half of the pairs in `tests/benchmark/meaning/answers.jsonl`, whose author did not know
it: a judge that is harder on other wordings misses fewer wrong answers, and finds the upstream to
contradict itself so often that nothing is ever proven, nor closed.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence

import msgspec

from index.demand import CONTENT, WORD_ORDER, Thresholds
from index.embedders.calibration import AS_IT_IS, Calibration
from index.guards.content import compare_content
from index.guards.parse import parse
from index.semantic import Semantic as SemanticIndex
from index.verdict import Accepted, judge, rules_for
from proxy.question import Question

_LIKE = 0.35
"""Cosine of all-MiniLM-L6-v2 from which a sentence is found in another one."""
_NEAR = 0.75
"""From which the two are about the same thing, so that what tells them apart contradicts."""
_LEAST_FOUND = 0.5
"""Share of the shorter answer's sentences that must be found in the other."""
_FEW_WORDS = 2
"""So many exchanged words beside equal ones are another fact; more are another wording."""
_MAX_SENTENCES = 24
"""Of an answer; of a longer one, several together count as one."""
_FENCE = "```"
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_LETTERS = re.compile(r"\w")
_ANY = Thresholds(
    same=-1.0,
    added=-1.0,
    narrowed=-1.0,
    decided=-1.0,
    exchanged=-1.0,
    reworded=-1.0,
    per_sign=0.0,
    reordered=-1.0,
    slip=-1.0,
)
_GUARDS = msgspec.structs.replace(
    rules_for("strict", guards={CONTENT: False, WORD_ORDER: False}), thresholds=_ANY
)
"""Whatever the similarity: the guards alone decide."""


class EmbeddingJudge:
    """See above. Does not see which answer is the stored one."""

    def __init__(
        self, semantic: Callable[[], SemanticIndex], *, calibration: Calibration = AS_IT_IS
    ) -> None:
        """`calibration`: of the embedder."""
        self._semantic = semantic
        self._worth = calibration

    async def agree(self, question: Question, one: str, other: str) -> bool | None:
        """See `proxy.auditing.judges.Judge`. None: the embedder cannot read a sentence."""
        if folded(one) == folded(other):
            return True
        if _FENCE in one or _FENCE in other:
            return one.split() == other.split()
        by_length = sorted((sentences(one), sentences(other)), key=lambda said: (len(said), said))
        shorter, longer = by_length
        if not shorter:
            return False
        cosines = await self._semantic().similarities(shorter, longer)
        if any(cosine is None for row in cosines for cosine in row):
            return None
        worth = [[self._worth(cosine or 0.0) for cosine in row] for row in cosines]
        return _agree(shorter, longer, worth)


def _agree(shorter: Sequence[str], longer: Sequence[str], near: Sequence[Sequence[float]]) -> bool:
    num_found = 0
    for sentence, row in zip(shorter, near, strict=True):
        nearest = max(range(len(longer)), key=row.__getitem__)
        if row[nearest] >= _NEAR and contradicts(sentence, longer[nearest]):
            return False
        num_found += row[nearest] >= _LIKE
    return num_found >= _LEAST_FOUND * len(shorter)


def contradicts(one: str, other: str) -> bool:
    """Whether two sentences about the same thing say different things of it."""
    if not isinstance(judge(one, other, similarity=1.0, rules=_GUARDS), Accepted):
        return True
    difference = compare_content(parse(one).content, parse(other).content)
    if not difference.exchanged:
        return difference.reordered and not difference.added
    return difference.exchanged + difference.added <= _FEW_WORDS


def folded(text: str) -> str:
    """Letter case, spaces and the last full stop aside; code and formulae as they are."""
    if _FENCE in text:
        return text.strip()
    composed = unicodedata.normalize("NFC", text).casefold()
    return " ".join(composed.split()).rstrip(".。 ")


def sentences(text: str) -> list[str]:
    """What an answer says, piece by piece."""
    found = [one.strip(" \t\n-*#>") for one in _END.split(text)]
    told = [one for one in found if _LETTERS.search(one)]
    if len(told) <= _MAX_SENTENCES:
        return told
    size = -(-len(told) // _MAX_SENTENCES)
    return [" ".join(told[at : at + size]) for at in range(0, len(told), size)]
