"""Hides the spellings of special tokens in what users wrote, while a template is rendered."""

import re
import secrets
from collections.abc import Collection, Sequence
from typing import Any

from engine.process.protocol import Message, ToolCall

_DIGITS = 20


class Spellings:
    """What is hidden; for one template."""

    def __init__(self, texts: Sequence[str], *, in_answers: Sequence[str]) -> None:
        """`texts` are hidden everywhere, but in earlier answers only those that are `in_answers`
        too: templates look for the others there, to cut off what the model thought."""
        self.texts = tuple(texts)
        self.numbers = {text: number for number, text in enumerate(texts)}
        self.everywhere = any_of(texts)
        self.in_answers = any_of(in_answers)


class Shield:
    """For one request. A mark that cannot be guessed stands for each spelling; it is made of
    digits, which no filter of a template changes."""

    def __init__(self, spellings: Spellings) -> None:
        self._spellings = spellings
        self._nonce = f"{secrets.randbelow(10**_DIGITS):0{_DIGITS}}"
        self._mark = re.compile(rf"{self._nonce}(\d{{6}})")

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """The same with marks in them."""
        return [self._message(message) for message in messages]

    def value(self, value: Any) -> Any:
        """The same JSON value with marks in its strings, keys included."""
        match value:
            case str():
                return self._hide(value, self._spellings.everywhere)
            case dict():
                return {self.value(key): self.value(inner) for key, inner in value.items()}
            case list() | tuple():
                return [self.value(inner) for inner in value]
            case _:
                return value

    def hides(self, text: str) -> bool:
        """Whether a mark stands in `text`."""
        return self._mark.search(text) is not None

    def open(self, text: str) -> str:
        """Puts the spellings back."""
        return self._mark.sub(lambda found: self._spellings.texts[int(found[1])], text)

    def _message(self, message: Message) -> Message:
        answer = message.role == "assistant"
        pattern = self._spellings.in_answers if answer else self._spellings.everywhere
        texts = (message.content,) if isinstance(message.content, str) else message.content
        hidden = tuple(self._hide(text, pattern) for text in texts)
        return Message(
            role=self.value(message.role),
            content=hidden[0] if isinstance(message.content, str) else hidden,
            name=self.value(message.name),
            tool_calls=tuple(map(self._tool_call, message.tool_calls)),
            tool_call_id=self.value(message.tool_call_id),
        )

    def _tool_call(self, call: ToolCall) -> ToolCall:
        arguments: dict[str, Any] = self.value(call.arguments)
        return ToolCall(id=self.value(call.id), name=self.value(call.name), arguments=arguments)

    def _hide(self, text: str, pattern: re.Pattern[str]) -> str:
        numbers = self._spellings.numbers
        return pattern.sub(lambda found: f"{self._nonce}{numbers[found[0]]:06}", text)


def any_of(texts: Collection[str]) -> re.Pattern[str]:
    """The longest where one begins another; nothing where there are none."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
