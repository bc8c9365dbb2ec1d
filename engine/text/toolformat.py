"""How a model writes a call of a tool, told from the text of its chat template."""

import re
from typing import Literal

import msgspec

_TOOLS = re.compile(r"\btools\b")


class ToolFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A call is `opening`, what `calls` says, `closing`. Where a grammar forces it, that is JSON
    with `name` and `arguments`, of which every model has seen enough."""

    opening: str
    closing: str
    arguments: str
    """What the member with the arguments is called."""
    is_list: bool
    """All calls stand as one JSON list between the marks."""
    calls: Literal["json", "named", "tagged"] = "json"
    """`named`: the tool's name, then its arguments as JSON; `tagged`: a tag for each argument."""
    inner: tuple[str, ...] = ()
    """Marks within a call."""


HERMES = ToolFormat(
    opening="<tool_call>", closing="</tool_call>", arguments="arguments", is_list=False
)
"""Hermes, Qwen, SmolLM."""
MISTRAL = ToolFormat(opening="[TOOL_CALLS]", closing="", arguments="arguments", is_list=True)
MISTRAL_NAMED = ToolFormat(
    opening="[TOOL_CALLS]", closing="", arguments="arguments", is_list=True, calls="named",
    inner=("[CALL_ID]", "[ARGS]"),
)  # fmt: skip
"""Since the 11th version of its tokenizer."""
QWEN_CODER = ToolFormat(
    opening="<tool_call>", closing="</tool_call>", arguments="arguments", is_list=False,
    calls="tagged",
)  # fmt: skip
"""Qwen3-Coder, and others after it."""
LLAMA = ToolFormat(opening="", closing="", arguments="parameters", is_list=False)
"""Llama 3: nothing marks the call, it is the whole answer."""


def tool_format(template: str) -> ToolFormat:
    """Of the marks that the template itself writes around calls of earlier turns. Hermes' where
    there are none: `engine.text.toolprompt` then explains it to the model."""
    if MISTRAL.opening in template:
        return MISTRAL_NAMED if "[ARGS]" in template else MISTRAL
    if "<function=" in template and "<parameter=" in template:
        return QWEN_CODER
    if HERMES.opening in template or not knows_tools(template):
        return HERMES
    return LLAMA if '"parameters": ' in template else HERMES


def knows_tools(template: str) -> bool:
    """The template says to the model which tools there are."""
    return _TOOLS.search(template) is not None
