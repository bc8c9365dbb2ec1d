"""How a model writes a call of a tool, told from the text of its chat template."""

import re

import msgspec

_TOOLS = re.compile(r"\btools\b")


class ToolFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A call is `opening`, JSON with `name` and `arguments`, `closing`."""

    opening: str
    closing: str
    arguments: str
    """What the member with the arguments is called."""
    is_list: bool
    """All calls stand as one JSON list between the marks."""


HERMES = ToolFormat(
    opening="<tool_call>", closing="</tool_call>", arguments="arguments", is_list=False
)
"""Hermes, Qwen, SmolLM."""
MISTRAL = ToolFormat(opening="[TOOL_CALLS]", closing="", arguments="arguments", is_list=True)
LLAMA = ToolFormat(opening="", closing="", arguments="parameters", is_list=False)
"""Llama 3: nothing marks the call, it is the whole answer."""


def tool_format(template: str) -> ToolFormat:
    """Of the marks that the template itself writes around calls of earlier turns. Hermes' where
    there are none: `engine.text.toolprompt` then explains it to the model."""
    if MISTRAL.opening in template:
        return MISTRAL
    if HERMES.opening in template or not knows_tools(template):
        return HERMES
    return LLAMA if '"parameters": ' in template else HERMES


def knows_tools(template: str) -> bool:
    """The template says to the model which tools there are."""
    return _TOOLS.search(template) is not None
