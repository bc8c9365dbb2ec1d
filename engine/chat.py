"""Chat templates, rendered as transformers renders them, and turned into ids such that nobody
but the template writes special tokens."""

import datetime
import json
import secrets
from collections.abc import Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import ModelUnusable, RequestRefused
from engine.protocol import Message
from engine.tokenizer import Tokenizer
from engine.toolformat import knows_tools, tool_format


class ChatTemplate:
    """A model's template. Rendering is pure but for the date, which some templates ask for."""

    def __init__(self, source: str, tokenizer: Tokenizer, *, bos: str = "", eos: str = "") -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ModelUnusable(f"the model's chat template is broken: {error}") from error
        self.tool_format = tool_format(source)
        self.knows_tools = knows_tools(source)
        """Else whoever renders has to say in words which tools there are."""
        self._tokenizer = tokenizer
        self._tokens = {"bos_token": bos, "eos_token": eos}

    def encode(
        self, messages: Sequence[Message], *, tools: Sequence[dict[str, Any]] = ()
    ) -> list[int]:
        """Ids of the prompt that asks for the assistant's next turn.

        A special token spelled out in a message stays text: it is hidden from the template's
        output behind a mark that cannot be guessed, and put back after the special tokens of the
        template itself were parsed. Messages without such text reach the template unchanged.
        Raises RequestRefused when the template refuses the messages.
        """
        shield = _Shield(self._tokenizer.special_texts)
        turns = [_turn(message, shield) for message in messages]
        try:
            text = self._template.render(
                messages=turns, tools=list(tools) or None, documents=None,
                add_generation_prompt=True, **self._tokens,
            )  # fmt: skip
        except jinja2.TemplateError as error:
            raise RequestRefused(
                f"The model's chat template refuses these messages: {error}", param="messages"
            ) from error
        return self._tokenizer.encode(text, literal=shield.open)


class _Shield:
    """Hides special tokens' spellings in text of users. Marks are of one request only."""

    def __init__(self, texts: Sequence[str]) -> None:
        nonce = secrets.token_hex(8)
        self._marks = {text: f"\ue000{nonce}:{number}\ue001" for number, text in enumerate(texts)}

    def hide(self, text: str) -> str:
        for special, mark in self._marks.items():
            text = text.replace(special, mark)
        return text

    def open(self, text: str) -> str:
        for special, mark in self._marks.items():
            text = text.replace(mark, special)
        return text


def _turn(message: Message, shield: _Shield) -> dict[str, str]:
    turn = {"role": shield.hide(message.role), "content": shield.hide("".join(message.content))}
    if message.name is not None:
        turn["name"] = shield.hide(message.name)
    return turn


def _tojson(value: Any, indent: int | None = None) -> str:
    """jinja2's own escapes for HTML; models were trained on plain JSON."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().astimezone().strftime(pattern)
