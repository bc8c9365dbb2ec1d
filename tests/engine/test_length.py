"""A megabyte of text is refused without a look at all of it."""

import pytest
from enginekit import TEMPLATE, Kit

from engine.errors import RequestRefused
from engine.process.protocol import Message, Request
from engine.text.chat import ChatTemplate
from engine.text.prompts import Prompts
from engine.text.renderer import Renderer
from engine.text.tokenizer import Tokenizer

MAX_TOKENS = 50


class Sparing(Tokenizer):
    """Never asked for more than a beginning."""

    def encode(self, text: str) -> list[int]:
        assert len(text) <= 16 * MAX_TOKENS
        return super().encode(text)


@pytest.fixture
def prompts(tiny: Kit, renderer: Renderer) -> Prompts:
    tokenizer = Sparing(tiny.tokenizer.vocabulary)
    return Prompts(
        tokenizer, ChatTemplate(TEMPLATE, tokenizer, renderer=renderer), max_tokens=MAX_TOKENS
    )


@pytest.mark.parametrize(
    "request_",
    [
        Request(prompt="word " * 200_000),
        Request(prompt="<|im_end|>" * 100_000),
        Request(messages=(Message(role="user", content="word " * 200_000),)),
    ],
    ids=["prompt", "special tokens", "messages"],
)
def test_a_text_that_cannot_fit_is_refused_by_its_beginning(
    prompts: Prompts, request_: Request
) -> None:
    with pytest.raises(RequestRefused, match="maximum context length is 50") as caught:
        prompts.encode(request_)
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize("num_tokens", [49, 50, 51, 81])
def test_whatever_may_fit_is_split(tiny: Kit, num_tokens: int) -> None:
    """Those of the longest tokens are texts of many characters."""
    prompts = Prompts(tiny.tokenizer, None, max_tokens=MAX_TOKENS)
    text = "<|endoftext|>" * num_tokens
    assert len(prompts.encode(Request(prompt=text))) == num_tokens
