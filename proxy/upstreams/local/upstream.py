"""The bundled engine as an upstream: OpenAI's wire format outside, `engine.process.client` inside.

With its parts beside it, `local_*`, the only module of the proxy that knows the engine. None
imports torch, the worker process does.
"""

import asyncio
import functools
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

import msgspec

from engine.errors import EngineDown, EngineLate, ModelUnusable, RequestRefused
from engine.process.client import EngineClient
from engine.process.generation import Generation
from engine.process.protocol import Outline, Profile, Sharing
from engine.sources.weights import is_at_hand, locate, model_id
from engine.text.toolformat import HERMES
from proxy.errors import (
    ClientError,
    ConfigError,
    UpstreamBroken,
    UpstreamRestarting,
    UpstreamUnreachable,
)
from proxy.settings.engine import Engine
from proxy.settings.upstreams import Timeout
from proxy.upstreams.base import (
    EngineProfile,
    PagePurge,
    PrefixTree,
    Server,
    UpstreamRequest,
    UpstreamResponse,
)
from proxy.upstreams.body import Body, Buffered
from proxy.upstreams.local.ask import chat_request, completion_requests, response_request
from proxy.upstreams.local.calls import Reader, reader
from proxy.upstreams.local.chat import ChatForm
from proxy.upstreams.local.completion import CompletionForm
from proxy.upstreams.local.config import engine_config
from proxy.upstreams.local.pages import Look, prefix_tree_of, purge_of, sharing_of, unseen
from proxy.upstreams.local.progress import in_quarters
from proxy.upstreams.local.refusal import refusal_of, told
from proxy.upstreams.local.request import decode_chat, decode_completion
from proxy.upstreams.local.response import ResponseForm
from proxy.upstreams.local.response_body import FIELDS, decode_response
from proxy.upstreams.local.tools import Tooling
from proxy.upstreams.local.writing import Ask, plain, streamed

_DOWNLOAD_S = 24 * 3600.0
_LOAD_S = 600.0
"""A model that takes longer to load is reported; it goes on loading all the same."""
_JSON = ((b"content-type", b"application/json"),)
_STREAM = ((b"content-type", b"text/event-stream; charset=utf-8"),)


class LocalUpstream:
    """See `proxy.upstreams.base.Upstream`."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        *,
        on_progress: Callable[[str], None] = lambda _: None,
        first_byte_s: float = Timeout().first_byte,
        shared: str | None = None,
        look: Look = unseen,
    ) -> None:
        """`on_progress` gets lines such as `loading smollm2-135m-instruct 25%`. `shared`: the
        socket of an engine that the parent of several workers runs; `look`: at the store. While
        the engine is away, `send` waits up to `first_byte_s`. Raises ConfigError when there is no
        such model.
        """
        try:
            model = model_id(engine.model)
            self._is_at_hand = is_at_hand(engine.model)
        except ModelUnusable as error:
            raise ConfigError([f"upstreams.{name}.engine.model: {error}"]) from error
        self.name = name
        self._engine = engine
        self._first_byte_s = first_byte_s
        self._tool_format = HERMES
        self._look = look
        self._model_id = engine.model_id or model
        # Until a download has ended nobody knows what it is: what is asked meanwhile is found by
        # nobody later.
        self._not_known = f"{name} {secrets.token_hex()}"
        self._client = EngineClient(
            engine_config(engine),
            on_progress=in_quarters(self._model_id, on_progress),
            shared=shared,
        )

    async def start(self) -> None:
        """Starts the engine's process and waits for its model. Raises UpstreamUnreachable."""
        await self._client.start()
        try:
            if not self._is_at_hand:
                await self._client.ready(timeout_s=_DOWNLOAD_S)
                self._is_at_hand = True
            # Reads the whole model: seconds, which the first request would wait for, and all others
            # with it.
            await asyncio.to_thread(getattr, self, "_identity")
            await self._client.ready(timeout_s=_LOAD_S)
        except (EngineDown, ModelUnusable) as error:
            raise UpstreamUnreachable(str(error), upstream=self.name) from error

    @property
    def identity(self) -> str:
        return self._identity if self._is_at_hand else self._not_known

    @functools.cached_property
    def _identity(self) -> str:
        """The file's digest covers tensors, vocabulary and chat template."""
        modes = f"kv:{self._engine.kv_cache.dtype} weights:{self._engine.weights}"
        kept = self._engine.long_context
        if kept.mode != "full":
            modes += f" long_context:{msgspec.json.encode(kept).decode()}"
        return f"{self.name} sha256:{locate(self._engine.model).sha256()} {modes}"

    @property
    def has_engine(self) -> bool:
        return True

    @property
    def models(self) -> tuple[str, ...]:
        return (self._model_id,)

    @property
    def servers(self) -> tuple[Server, ...]:
        return (self,)

    async def state(self) -> str:
        return self._client.state()

    async def purge(self, purge: PagePurge) -> int:
        return (await self._client.purge(purge_of(purge))).num_pages

    async def figures(self) -> Mapping[str, int]:
        """The numbers of the engine's `Ready` and `Occupancy`, and which kernels served
        attention."""
        try:
            occupancy = await self._client.inspect()
            ready = await self._client.ready(timeout_s=self._first_byte_s)
        except (EngineDown, ModelUnusable):
            return {}
        served = {f"attention_{name}": n for name, n in occupancy.attention_calls.items()}
        numbers = msgspec.structs.asdict(ready) | msgspec.structs.asdict(occupancy)
        return {name: n for name, n in numbers.items() if isinstance(n, int)} | served

    async def profile(self, *, num_steps: int, longest_s: float) -> EngineProfile | None:
        try:
            done = await self._client.profile(Profile(num_steps=num_steps, longest_s=longest_s))
        except EngineDown as error:
            raise UpstreamUnreachable(str(error), upstream=self.name) from error
        return EngineProfile(
            upstream=self.name,
            num_steps=done.num_steps,
            steps_s=done.steps_s,
            phases=done.phases,
            trace=done.trace,
        )

    async def prefix_tree(self, *, max_nodes: int) -> PrefixTree | None:
        try:
            outlined = await self._client.outline(Outline(max_nodes=max_nodes))
        except EngineDown as error:
            raise UpstreamUnreachable(str(error), upstream=self.name) from error
        return prefix_tree_of(self.name, outlined)

    async def close(self) -> None:
        await self._client.close()

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        try:
            ask = self._ask(request.method, request.path, await _whole(request.body))
            sharing = await sharing_of(request.provenance(), self._look, model=self._model_id)
            generation, prompt_tokens = await self._admitted(ask, sharing)
            if ask.stream:
                events = self._guarded(streamed(ask, generation, prompt_tokens), ask)
                return self._response(200, _STREAM, _Writing(events, generation))
            async with generation:
                pieces = self._guarded(plain(ask, generation, prompt_tokens), ask)
                body = b"".join([piece async for piece in pieces])
        except ClientError as error:
            return self._response(error.status, _JSON, Buffered(told(error)))
        return self._response(200, _JSON, Buffered(body))

    def _ask(self, method: str, path: str, body: bytes) -> Ask:
        """Raises ClientError."""
        match method, path:
            case "POST", "/chat/completions":
                return self._chat_ask(body)
            case "POST", "/completions":
                return self._completion_ask(body)
            case "POST", "/responses":
                return self._response_ask(body)
            case _:
                raise ClientError(404, _not_served(method, path), code="unknown_url")

    def _chat_ask(self, body: bytes) -> Ask:
        chat = decode_chat(body)
        form = ChatForm(
            model=self._model_id, created=int(time.time()), reader=self._reader(chat.tooling)
        )
        return Ask(
            requests=(chat_request(chat),),
            form=form,
            prompt_field="messages",
            stream=bool(chat.stream),
            fields=chat.fields,
        )

    def _completion_ask(self, body: bytes) -> Ask:
        completion = decode_completion(body)
        return Ask(
            requests=completion_requests(completion),
            form=CompletionForm(model=self._model_id, created=int(time.time())),
            prompt_field="prompt",
            stream=bool(completion.stream),
        )

    def _response_ask(self, body: bytes) -> Ask:
        response = decode_response(body)
        form = ResponseForm(
            response,
            model=self._model_id,
            created=int(time.time()),
            reader=self._reader(response.tooling),
        )
        return Ask(
            requests=(response_request(response),),
            form=form,
            prompt_field="input",
            stream=bool(response.stream),
            fields=FIELDS,
        )

    def _reader(self, tooling: Tooling) -> Callable[[], Reader] | None:
        # The format is that of the model that answers: not known before it has been admitted there.
        return (lambda: reader(self._tool_format, tooling)) if tooling.offered else None

    async def _admitted(self, ask: Ask, sharing: Sharing) -> tuple[Generation, int]:
        """Begun, and the tokens of its prompts. Raises UpstreamError, ClientError."""
        until_s = time.monotonic() + self._first_byte_s
        try:
            return await self._begun(ask, sharing, until_s=until_s)
        except UpstreamRestarting as error:
            if error.late:
                raise
            # Once more when it is back, and no oftener: the request may be what ends it.
            return await self._begun(ask, sharing, until_s=until_s)

    async def _begun(self, ask: Ask, sharing: Sharing, *, until_s: float) -> tuple[Generation, int]:
        generation = await self._sent(ask, sharing, timeout_s=until_s - time.monotonic())
        try:
            return generation, await generation.started()
        except RequestRefused as error:
            raise refusal_of(error, ask.fields, param=error.param or ask.prompt_field) from error
        except EngineDown as error:
            raise self._restarting(error, before_first_byte=True) from error

    async def _sent(self, ask: Ask, sharing: Sharing, *, timeout_s: float) -> Generation:
        """Waits for the model. Raises UpstreamRestarting, UpstreamUnreachable."""
        try:
            ready = await self._client.ready(timeout_s=timeout_s)
            self._tool_format = ready.tool_format
            requests = (msgspec.structs.replace(one, sharing=sharing) for one in ask.requests)
            return self._client.generate(*requests)
        except EngineLate as error:
            raise self._restarting(error, before_first_byte=True) from error
        except (EngineDown, ModelUnusable) as error:
            raise UpstreamUnreachable(str(error), upstream=self.name) from error

    async def _guarded(
        self, pieces: AsyncGenerator[bytes, None], ask: Ask
    ) -> AsyncGenerator[bytes, None]:
        """The same pieces, with the engine's error as the proxy's. A stream that is refused before
        its first event has that as its only one, which gets the status that it should have
        (`proxy.upstreams.opening`). Raises ClientError, UpstreamBroken."""
        before_first_byte = True
        try:
            async for piece in pieces:
                yield piece
                before_first_byte = False
        except RequestRefused as error:  # its grammar gave out on the way
            if not before_first_byte:
                raise UpstreamBroken(error.message, upstream=self.name) from error
            constraint = ask.requests[0].constraint
            named = constraint.param if constraint else "messages"
            refused = refusal_of(error, ask.fields, param=named)
            if not ask.stream:
                raise refused from error
            yield b"data: " + told(refused) + b"\n\n"
        except EngineDown as error:
            raise self._restarting(error, before_first_byte=before_first_byte) from error

    def _restarting(self, error: EngineDown, *, before_first_byte: bool) -> UpstreamRestarting:
        return UpstreamRestarting(
            str(error),
            upstream=self.name,
            before_first_byte=before_first_byte,
            late=isinstance(error, EngineLate),
        )

    def _response(
        self,
        status: int,
        headers: tuple[tuple[bytes, bytes], ...],
        body: AsyncGenerator[bytes, None],
    ) -> UpstreamResponse:
        return UpstreamResponse(upstream=self.name, status=status, headers=headers, body=body)


class _Writing(Body):
    """A stream that is being written; it owns the generation."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], generation: Generation) -> None:
        self._pieces = pieces
        self._generation = generation

    async def __anext__(self) -> bytes:
        return await anext(self._pieces)

    async def aclose(self) -> None:
        try:
            await self._pieces.aclose()
        finally:
            await self._generation.aclose()


def _not_served(method: str, path: str) -> str:
    served = "It serves POST /chat/completions, POST /completions and POST /responses"
    if path == "/embeddings":
        served += "; route embeddings to an upstream with an embedding model"
    return f"The bundled engine does not serve {method} {path}. {served}."


async def _whole(body: bytes | AsyncIterator[bytes]) -> bytes:
    return body if isinstance(body, bytes) else b"".join([piece async for piece in body])
