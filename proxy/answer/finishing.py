"""Whether the choices of a completion are all there and all finished."""

from collections.abc import Iterable
from typing import Protocol

from msgspec import UNSET, UnsetType

from proxy.answer.grammar import COMPLETE_REASONS, Answer, Discarded
from proxy.call import Usage


class Choice(Protocol):
    """What is looked at of a choice, or of the part of it that a chunk carries."""

    index: int | UnsetType
    finish_reason: str | None


class Finishing:
    """Counts the choices of one answer as they come in.

    Among several each must name its index: one without could hide another that is not finished.
    """

    __slots__ = ("_fault", "_num_choices", "_reasons")

    def __init__(self, num_choices: int | None) -> None:
        """`num_choices`: how many were asked for; None where that cannot be told."""
        self._num_choices = num_choices
        self._reasons: dict[int, str | None] = {}
        self._fault = "" if num_choices else "it cannot be told how many choices were asked for"

    def add(self, choices: Iterable[Choice]) -> None:
        """The choices of one chunk, or of a whole plain answer. The first reason that is none of
        a whole answer stays, whatever the server says of that choice afterwards."""
        seen: set[int] = set()
        for choice in choices:
            if choice.index is UNSET and self._num_choices != 1:
                self._fault = self._fault or "a choice without an index among several"
            index = choice.index or 0
            if index in seen:
                self._fault = self._fault or f"choice {index} comes twice"
            seen.add(index)
            reason = self._reasons.get(index)
            if not reason or reason in COMPLETE_REASONS:
                self._reasons[index] = choice.finish_reason or reason

    def judged(
        self, *, usage: Usage | None, model: str, has_tool_calls: bool
    ) -> Answer | Discarded:
        """The verdict over all choices."""
        reasons = self._reasons
        if not reasons:
            return Discarded(reason="no choices")
        if self._fault:
            return Discarded(reason=self._fault)
        if len(reasons) != self._num_choices:
            return Discarded(reason=f"{len(reasons)} choices of {self._num_choices}")
        finished: list[str] = []
        for index in sorted(reasons):
            reason = reasons[index]
            if not reason:
                return Discarded(reason=f"choice {index} has no finish reason")
            if reason not in COMPLETE_REASONS:
                return Discarded(reason=f"choice {index} ended with {reason}")
            finished.append(reason)
        has_tool_calls = has_tool_calls or not {"tool_calls", "function_call"}.isdisjoint(finished)
        return Answer(
            usage=usage,
            model=model,
            finish_reasons=tuple(finished),
            has_tool_calls=has_tool_calls,
        )
