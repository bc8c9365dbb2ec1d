"""Bodies as the engine's requests."""

from engine.protocol import Message, Request
from engine.sampling import Sampling
from proxy.upstreams.local_request import (
    ChatBody,
    CompletionBody,
    SamplingBody,
    single_prompt,
    turn_text,
)


def chat_request(chat: ChatBody) -> Request:
    """Raises ClientError for a message that is not text."""
    top_logprobs = (chat.top_logprobs or 0) if chat.logprobs else None
    messages = tuple(
        Message(
            # Newer clients say developer where chat templates know system.
            role="system" if turn.role == "developer" else turn.role,
            content=turn_text(turn, index),
            name=turn.name,
        )
        for index, turn in enumerate(chat.messages)
    )
    max_tokens = chat.max_completion_tokens or chat.max_tokens
    return Request(
        messages=messages,
        sampling=_sampling(chat, max_tokens=max_tokens, top_logprobs=top_logprobs),
        num_choices=chat.n or 1,
    )


def completion_request(completion: CompletionBody) -> Request:
    """Raises ClientError for none or several prompts."""
    prompt = single_prompt(completion)
    max_tokens = completion.answer_tokens
    return Request(
        prompt=prompt if isinstance(prompt, str) else None,
        prompt_ids=prompt if isinstance(prompt, tuple) else None,
        sampling=_sampling(completion, max_tokens=max_tokens, top_logprobs=None),
        num_choices=completion.n or 1,
    )


def _sampling(body: SamplingBody, *, max_tokens: int | None, top_logprobs: int | None) -> Sampling:
    default = Sampling()
    temperature, top_p = body.temperature, body.top_p
    repetition = body.repetition_penalty
    return Sampling(
        max_tokens=max_tokens,
        temperature=default.temperature if temperature is None else temperature,
        top_p=default.top_p if top_p is None else top_p,
        top_k=max(body.top_k or 0, 0),  # vLLM's clients write -1 for off
        min_p=body.min_p or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        repetition_penalty=default.repetition_penalty if repetition is None else repetition,
        logit_bias=body.logit_bias or {},
        seed=body.seed,
        stop=body.stops,
        top_logprobs=top_logprobs,
    )
