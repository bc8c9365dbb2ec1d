"""Bodies as the engine's requests."""

from typing import assert_never

import msgspec

from engine.grammars.constraint import Constraint, Function
from engine.longcontext import LongContext
from engine.process.protocol import Message, Request, ToolCall
from engine.sampling import Sampling
from proxy.settings import longcontext as written
from proxy.upstreams.local.items import messages_of
from proxy.upstreams.local.numbers import arguments_of
from proxy.upstreams.local.request import (
    ChatBody,
    CompletionBody,
    SamplingBody,
    Turn,
    prompts_of,
    turn_text,
)
from proxy.upstreams.local.response_body import ResponseBody
from proxy.upstreams.local.tools import (
    CallBody,
    ObjectFormat,
    ResponseFormat,
    SchemaFormat,
    TextFormat,
    ToolBody,
    Tooling,
)

_ANY_OBJECT = '{"type":"object"}'


def chat_request(chat: ChatBody) -> Request:
    """Raises ClientError for what cannot be honoured."""
    top_logprobs = (chat.top_logprobs or 0) if chat.logprobs else None
    max_tokens = chat.max_completion_tokens or chat.max_tokens
    tooling = chat.tooling
    return Request(
        messages=tuple(_message(turn, index) for index, turn in enumerate(chat.messages)),
        tools=tuple(msgspec.to_builtins(tool) for tool in tooling.offered),
        constraint=_constraint(chat.response_format, tooling),
        sampling=_sampling(chat, max_tokens=max_tokens, top_logprobs=top_logprobs),
        num_choices=chat.n or 1,
        long_context=_long_context(chat.long_context),
    )


def completion_requests(completion: CompletionBody) -> tuple[Request, ...]:
    """One for each prompt. Raises ClientError for none or too many."""
    max_tokens = completion.answer_tokens
    alike = Request(
        echo=bool(completion.echo),
        sampling=_sampling(completion, max_tokens=max_tokens, top_logprobs=completion.logprobs),
        num_choices=completion.n or 1,
        long_context=_long_context(completion.long_context),
    )
    return tuple(
        msgspec.structs.replace(alike, prompt=prompt)
        if isinstance(prompt, str)
        else msgspec.structs.replace(alike, prompt_ids=prompt)
        for prompt in prompts_of(completion)
    )


def response_request(response: ResponseBody) -> Request:
    """Raises ClientError for what cannot be honoured."""
    tooling = response.tooling
    return Request(
        messages=tuple(messages_of(response.input, response.instructions)),
        tools=tuple(msgspec.to_builtins(tool) for tool in tooling.offered),
        constraint=_constraint(response.response_format, tooling),
        sampling=_sampling(
            SamplingBody(temperature=response.temperature, top_p=response.top_p),
            max_tokens=response.max_output_tokens,
            top_logprobs=response.wanted_logprobs,
        ),
        long_context=_long_context(response.long_context),
    )


def _message(turn: Turn, index: int) -> Message:
    return Message(
        # Newer clients say developer where chat templates know system.
        role="system" if turn.role == "developer" else turn.role,
        content=turn_text(turn, index),
        name=turn.name,
        tool_calls=tuple(
            _call(call, f"messages[{index}].tool_calls[{at}]")
            for at, call in enumerate(turn.tool_calls or ())
        ),
        tool_call_id=turn.tool_call_id,
    )


def _call(call: CallBody, param: str) -> ToolCall:
    arguments = arguments_of(call.function.arguments, f"{param}.function.arguments")
    return ToolCall(id=call.id, name=call.function.name, arguments=arguments)


def _constraint(response_format: ResponseFormat | None, tooling: Tooling) -> Constraint | None:
    """Forced calls leave no room for another format; calls that may come stand beside it."""
    tools = tuple(_function(tool) for tool in tooling.offered)
    if tooling.forced:
        return Constraint(tools=tools, parallel=tooling.parallel)
    match response_format:
        case None | TextFormat():
            return None
        case ObjectFormat():
            return Constraint(schema=_ANY_OBJECT, tools=tools, parallel=tooling.parallel)
        case SchemaFormat(json_schema=wanted):
            return Constraint(
                schema=msgspec.json.encode(wanted.schema).decode(),
                strict=bool(wanted.strict),
                tools=tools,
                parallel=tooling.parallel,
            )
        case _:
            assert_never(response_format)


def _function(tool: ToolBody) -> Function:
    function = tool.function
    schema = _ANY_OBJECT
    if function.parameters:
        # Where it stands by itself, an empty schema would let in anything.
        schema = msgspec.json.encode({"type": "object"} | function.parameters).decode()
    return Function(name=function.name, schema=schema, strict=bool(function.strict))


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
        min_tokens=body.min_tokens or 0,
        ignore_eos=bool(body.ignore_eos),
        stop=body.stops,
        top_logprobs=top_logprobs,
    )


def _long_context(wanted: written.LongContext | None) -> LongContext | None:
    """None: the client leaves it to the engine's config."""
    return msgspec.convert(wanted, LongContext | None, from_attributes=True)
