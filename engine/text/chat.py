"""Chat templates, rendered as transformers renders them, and turned into ids such that nobody
but the template writes special tokens."""

from collections.abc import Sequence
from typing import Any

from engine.errors import ModelUnusable, RequestRefused
from engine.process.protocol import Message
from engine.text.guarded import GuardedEncoder
from engine.text.length import refuse_too_long
from engine.text.renderer import Renderer, RendererStuck, TemplateFault
from engine.text.shield import Shield, Spellings
from engine.text.tokenizer import Tokenizer
from engine.text.toolformat import knows_tools, tool_format
from engine.text.turns import turn

_PROBE = "Hello7"


class ChatTemplate:
    """A model's template. Rendering is pure but for the date, which some templates ask for."""

    def __init__(
        self,
        source: str,
        tokenizer: Tokenizer,
        *,
        renderer: Renderer,
        bos: str = "",
        eos: str = "",
        tool_use: str | None = None,
    ) -> None:
        """`tool_use` takes the place of `source` in requests with tools, for models that have a
        template of that name. Raises ModelUnusable for a template that is broken."""
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._renderer = renderer
        self._template = source
        self._tool_use = tool_use or source
        self._check()
        self.tool_format = tool_format(self._tool_use)
        self.knows_tools = knows_tools(self._tool_use)
        """Else whoever renders has to say in words which tools there are."""
        self._tokenizer = tokenizer
        controls = tokenizer.special_texts
        written = _written_by(source + self._tool_use, tokenizer.added_texts)
        self._spellings = Spellings((*controls, *written), in_answers=controls)
        self._encoder = GuardedEncoder(tokenizer, self._spellings.texts)
        self._as_parts = not self._takes(_PROBE) and self._takes([{"type": "text", "text": _PROBE}])

    def encode(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[dict[str, Any]] = (),
        max_tokens: int | None = None,
    ) -> list[int]:
        """Ids of the prompt that asks for the assistant's next turn.

        A special token spelled out in a message or a tool stays text: it is hidden from the
        template behind a mark that cannot be guessed, and put back after the special tokens of
        the template itself were parsed. What is free of such text reaches the template unchanged.
        Raises RequestRefused when the template refuses the messages, and may do so for a prompt of
        more than `max_tokens`.
        """
        shield = Shield(self._spellings)
        try:
            turns = [turn(m, as_parts=self._as_parts) for m in shield.messages(messages)]
            text = self._render(turns, shield.value(tools))
        except (TemplateFault, RecursionError) as error:
            raise RequestRefused(
                f"The model's chat template refuses these messages: {error}", param="messages"
            ) from error
        except RendererStuck as error:
            raise RequestRefused(str(error), code="engine_fault") from error
        if max_tokens is not None:
            refuse_too_long(text, self._tokenizer, max_tokens=max_tokens)
        if not shield.hides(text):
            return self._tokenizer.encode(text)
        return self._encoder.encode(text, literal=shield.open)

    def _render(self, turns: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
        variables = {
            "messages": turns,
            "tools": tools or None,
            "documents": None,
            "add_generation_prompt": True,
            **self._tokens,
        }
        return self._renderer.render(self._tool_use if tools else self._template, variables)

    def _check(self) -> None:
        try:
            for source in {self._template, self._tool_use}:
                self._renderer.check(source)
        except TemplateFault as error:
            raise ModelUnusable(f"the model's chat template is broken: {error}") from error

    def _takes(self, content: str | list[dict[str, str]]) -> bool:
        """Whether a turn with such content comes out as its text, and not as Python's."""
        try:
            text = self._render([{"role": "user", "content": content}], [])
        except TemplateFault:
            return False
        return _PROBE in text and "'type'" not in text


def _written_by(source: str, texts: Sequence[str]) -> list[str]:
    """Tokens that the template writes, though the vocabulary does not count them among its
    control tokens, such as Qwen's `<tool_call>`. Users may not write those either."""
    return [text for text in texts if text.strip() and text in source]
