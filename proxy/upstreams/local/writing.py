"""What the engine sends for a request, written as the answer to it."""

from collections.abc import AsyncGenerator, Mapping, Sequence

import msgspec

from engine.process.generation import Generation
from engine.process.protocol import Delta, Finished, Request, TokenChoice, TokenLogprob
from proxy.upstreams.local.answer import (
    AnswerForm,
    Choice,
    Json,
    Token,
    TokenDetail,
    usage_of,
)


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in the engine's terms, one for each prompt, and how their answer is written."""

    requests: tuple[Request, ...]
    """Alike but for their prompts."""
    form: AnswerForm
    prompt_field: str
    stream: bool
    fields: Mapping[str, str] = {}
    """What the body calls a field that the engine names otherwise in an error."""

    @property
    def num_choices(self) -> int:
        return sum(request.num_choices for request in self.requests)

    @property
    def has_logprobs(self) -> bool:
        return self.requests[0].sampling.top_logprobs is not None


async def streamed(
    ask: Ask, generation: Generation, prompt_tokens: int
) -> AsyncGenerator[bytes, None]:
    """Nothing before the engine's first event: an answer that fails at once can have a status."""
    async with generation:
        completion_tokens = cached_tokens = 0
        opening = [
            ask.form.frame(chunk)
            for index in range(ask.num_choices)
            for chunk in ask.form.begin(index)
        ]
        async for item in generation:
            for begun in opening:
                yield begun
            opening.clear()
            match item:
                case Delta(index=index, text=text):
                    for chunk in ask.form.pieces(index, text, _details(ask, item.logprobs)):
                        yield ask.form.frame(chunk)
                case Finished(index=index, reason=reason):
                    completion_tokens += item.completion_tokens
                    cached_tokens += item.cached_tokens
                    for chunk in ask.form.end(index, reason):
                        yield ask.form.frame(chunk)
        last = ask.form.usage(_usage(prompt_tokens, completion_tokens, cached_tokens))
        yield ask.form.frame(last) + ask.form.closing


async def plain(
    ask: Ask, generation: Generation, prompt_tokens: int
) -> AsyncGenerator[bytes, None]:
    """One piece: the whole body."""
    texts = [""] * ask.num_choices
    logprobs: list[list[TokenDetail]] = [[] for _ in texts]
    ends: dict[int, Finished] = {}
    async for item in generation:
        match item:
            case Delta(index=index, text=text):
                texts[index] += text
                logprobs[index] += _details(ask, item.logprobs) or ()
            case Finished(index=index):
                ends[index] = item
    choices = [
        Choice(
            index=index,
            text=text,
            finish_reason=ends[index].reason,
            logprobs=logprobs[index] if ask.has_logprobs else None,
        )
        for index, text in enumerate(texts)
    ]
    usage = _usage(
        prompt_tokens,
        sum(end.completion_tokens for end in ends.values()),
        sum(end.cached_tokens for end in ends.values()),
    )
    yield msgspec.json.encode(ask.form.whole(choices, usage))


def _usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> Json:
    return usage_of(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cached_tokens=cached_tokens,
    )


def _details(ask: Ask, choices: Sequence[TokenChoice]) -> list[TokenDetail] | None:
    if not ask.has_logprobs:
        return None
    return [
        TokenDetail(
            token=_text(choice.chosen),
            logprob=choice.chosen.logprob,
            bytes=list(choice.chosen.token),
            top_logprobs=[
                Token(token=_text(top), logprob=top.logprob, bytes=list(top.token))
                for top in choice.top
            ],
        )
        for choice in choices
    ]


def _text(token: TokenLogprob) -> str:
    """Part of a character shows as U+FFFD; `bytes` has it all."""
    return token.token.decode(errors="replace")
