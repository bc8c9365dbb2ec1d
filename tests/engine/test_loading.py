"""How an engine is put together: what a model may lack."""

import pytest
from enginekit import TEMPLATE, Kit

from engine.config import EngineConfig
from engine.loading import _pins
from engine.text.chat import ChatTemplate
from engine.text.renderer import Renderer

REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"


@pytest.mark.parametrize(("source", "is_pinned"), [(TEMPLATE, True), (REFUSES + TEMPLATE, False)])
def test_a_template_that_knows_no_system_prompt_has_none_pinned(
    tiny: Kit, caplog: pytest.LogCaptureFixture, source: str, renderer: Renderer, *, is_pinned: bool
) -> None:
    pins = _pins(
        EngineConfig(model="", kv_pin=("Be brief.",)),
        tiny.tokenizer,
        ChatTemplate(source, tiny.tokenizer, renderer=renderer),
    )
    chat = tiny.tokenizer.encode("<|im_start|>system\nBe brief.<|im_end|>\n")
    assert bool(pins.num_pinned(chat)) == is_pinned
    assert pins.num_pinned(tiny.tokenizer.encode("Be brief. Hello"))
    assert ("nothing is pinned as a system prompt" in caplog.text) != is_pinned
