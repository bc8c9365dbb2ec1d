"""What a request asks, as token ids."""

from engine.errors import RequestRefused
from engine.process.protocol import Request
from engine.text.chat import ChatTemplate
from engine.text.length import refuse_too_long
from engine.text.tokenizer import Tokenizer
from engine.text.toolformat import HERMES, ToolFormat
from engine.text.toolprompt import in_words


class Prompts:
    """Of one model."""

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate | None, *, max_tokens: int
    ) -> None:
        """`max_tokens`: no prompt is longer."""
        self._max_tokens = max_tokens
        self._tokenizer = tokenizer
        self._template = template
        self.tool_format: ToolFormat = HERMES if template is None else template.tool_format
        marks = (self.tool_format.opening, *self.tool_format.inner)
        ids = map(tokenizer.silent_ids.get, marks)
        self._marks = frozenset(mark for mark in ids if mark is not None)

    def encode(self, request: Request) -> list[int]:
        """Raises RequestRefused."""
        if request.prompt_ids is not None:
            return list(request.prompt_ids)
        if request.prompt is not None:
            refuse_too_long(request.prompt, self._tokenizer, max_tokens=self._max_tokens)
            return self._tokenizer.encode(request.prompt)
        if self._template is None:
            raise RequestRefused("This model has no chat template; use /completions.")
        messages = request.messages or ()
        if self._template.knows_tools:
            return self._template.encode(messages, tools=request.tools, max_tokens=self._max_tokens)
        told = in_words(messages, request.tools)
        return self._template.encode(told, max_tokens=self._max_tokens)

    def text(self, request: Request) -> str:
        """The prompt that is no chat, as text."""
        if request.prompt is not None:
            return request.prompt
        ids = request.prompt_ids or ()
        return b"".join(map(self._tokenizer.bytes_of, ids)).decode(errors="replace")

    def shown_ids(self, request: Request) -> frozenset[int]:
        """Control tokens that mark calls of tools, where the answer may hold such."""
        return self._marks if request.tools else frozenset()
