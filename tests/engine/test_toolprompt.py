import pytest

from engine.process.protocol import Message, ToolCall
from engine.text.toolformat import (
    HERMES,
    LLAMA,
    MISTRAL,
    MISTRAL_NAMED,
    QWEN_CODER,
    ToolFormat,
    knows_tools,
    tool_format,
)
from engine.text.toolprompt import in_words

TOOL = {"type": "function", "function": {"name": "f", "description": "Grüßt."}}
CALL = ToolCall(id="1", name="f", arguments={"x": "ä"})


@pytest.mark.parametrize(
    ("template", "form", "knows"),
    [
        ("{{ messages[0].content }}", HERMES, False),
        ("{% if tools %}<tool_call>{% endif %}", HERMES, True),
        ("{{ '[TOOL_CALLS]' + call.name + '[ARGS]' }}{{ tools }}", MISTRAL_NAMED, True),
        ("<tool_call><function=x><parameter=y></tool_call>{{ tools }}", QWEN_CODER, True),
        ("{% if tools %}[TOOL_CALLS]{% endif %}", MISTRAL, True),
        ('{% if tools %}{"name": "f", "parameters": {}}{% endif %}', LLAMA, True),
        ("{{ tools | tojson }}", HERMES, True),
    ],
)
def test_the_templates_own_marks_tell_the_format(
    template: str, form: ToolFormat, knows: bool
) -> None:
    assert tool_format(template) == form
    assert knows_tools(template) is knows


def test_tools_are_explained_after_what_the_system_says() -> None:
    chat = (Message(role="system", content="Be kind."), Message(role="user", content="Hi"))
    system, user = in_words(chat, [TOOL])
    assert system.role == "system"
    assert system.content.startswith("Be kind.\n\n")
    assert '"description": "Grüßt."' in system.content
    assert "<tool_call>" in system.content
    assert user == chat[1]


def test_tools_bring_a_system_message_where_there_is_none() -> None:
    assert [m.role for m in in_words((Message(role="user", content="Hi"),), [TOOL])] == [
        "system",
        "user",
    ]


def test_calls_and_results_become_text_in_the_form_that_is_explained() -> None:
    chat = (
        Message(role="assistant", content="So:", tool_calls=(CALL, CALL)),
        Message(role="tool", content="42", tool_call_id="1"),
    )
    said, result = in_words(chat, ())
    written = '<tool_call>\n{"name": "f", "arguments": {"x": "ä"}}\n</tool_call>'
    assert said == Message(role="assistant", content=f"So:\n{written}\n{written}")
    assert result == Message(role="user", content="<tool_response>\n42\n</tool_response>")


def test_a_chat_without_tools_stays_as_it_is() -> None:
    chat = (Message(role="user", content="Hi", name="ada"),)
    assert in_words(chat, ()) == chat
