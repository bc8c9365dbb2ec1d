"""Messages between `EngineClient` and the worker process.

A frame is a length (4 bytes, little endian) and a msgpack map with its type under `type`. The
client writes `Configure` first, then requests; the worker writes progress, then `Ready` or
`Unusable`, then answers. An answer is `Started`, any number of `Delta`, and a `Finished` for each
choice; or a single `Failed`, which may also end an answer that has begun. After `Abort` nothing
more is promised for that request.
"""

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from engine.config import EngineConfig
from engine.grammars.constraint import Constraint
from engine.longcontext import LongContext
from engine.sampling import Sampling
from engine.text.toolformat import HERMES, ToolFormat

_LENGTH = struct.Struct("<I")
MAX_FRAME_BYTES = 256 * 2**20


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the assistant called in an earlier turn."""

    id: str
    name: str
    arguments: dict[str, Any]
    """The JSON object, parsed; its fields stay in the order in which they were written."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a chat."""

    role: str
    content: str | tuple[str, ...] = ""
    """Text, or the texts of several parts. Empty where an assistant only called tools."""
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """In a `tool` message: the call that it answers."""


class Configure(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    config: EngineConfig


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """How many purges the store had seen, `sequence`, of counters that are called `generation`."""

    generation: str
    sequence: int


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """With whom a request shares pages, and until when."""

    isolation: str = ""
    """Requests with another name never meet its pages."""
    tags: tuple[str, ...] | None = ()
    """A purge of one of them drops its pages; None: any purge does, for they are not known."""
    as_of: Moment | None = None
    """The store as the request saw it when it arrived; None: not known."""
    publishes: bool = True
    """Its pages are kept for others. It may begin with those of others in any case."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one of `messages`, `prompt` (text, special tokens are parsed) and `prompt_ids`."""

    messages: tuple[Message, ...] | None = None
    prompt: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    tools: tuple[dict[str, Any], ...] = ()
    """With `messages`: what the template is told of, each `{"type": "function", "function": …}`."""
    constraint: Constraint | None = None
    echo: bool = False
    """Each choice begins with the text of the prompt."""
    sampling: Sampling = Sampling()
    num_choices: int = 1
    sharing: Sharing = Sharing()
    long_context: LongContext | None = None
    """None: as the engine's config says."""


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    request_id: int
    request: Request


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """No-op for a request that is unknown or done."""

    request_id: int


class Inspect(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Asks for `Occupancy`, which comes after the step that is running now."""


class Purge(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Asks for `Purged`. When that comes no later request meets a page that the purge covers."""

    tags: tuple[str, ...] = ()
    everything: bool = False
    dry_run: bool = False
    """Count, and change nothing."""
    moment: Moment | None = None
    """The store after this purge; None: not known."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Asks for `Profiled`, which comes after so many steps that compute something, or when the
    time is over."""

    num_steps: int
    longest_s: float


class Outline(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Asks for `Outlined`, which comes after the step that is running now."""

    max_nodes: int


class Loading(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The share of the model that is loaded; or it has to come from elsewhere before."""

    fraction: float
    downloading: bool = False


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The model is loaded; what it can do."""

    max_context: int
    weights: str
    page_bytes: int
    bytes_per_token: int
    tool_format: ToolFormat = HERMES
    """How the model writes calls of tools."""


class Unusable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Loading failed."""

    message: str
    passing: bool = False
    """A restart may mend it: there was too little memory, which others had."""


class Started(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The request was admitted and waits or runs."""

    request_id: int
    prompt_tokens: int


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token and its natural-log probability, before temperature and penalties."""

    token: bytes
    logprob: float


class TokenChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen token with the likeliest ones at its place."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


class Delta(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """More text of one choice: whole characters, nothing of a stop string."""

    request_id: int
    index: int
    text: str
    logprobs: tuple[TokenChoice, ...] = ()


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A choice is done. `reason` is `stop` or `length`."""

    request_id: int
    index: int
    reason: str
    completion_tokens: int
    cached_tokens: int = 0
    """Of the prompt, found in the prefix cache; of a request's first choice only."""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The request was refused, or its grammar failed on the way; see `RequestRefused`."""

    request_id: int
    message: str
    param: str | None = None
    code: str | None = None


class Purged(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Pages dropped, or covered; one that lay both in memory and on disk counts once."""

    num_pages: int


class Profiled(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`phases`: seconds by what was done, `steps_s` together. `trace`: gzip of a JSON file that
    Chrome's and Perfetto's viewers read."""

    num_steps: int
    steps_s: float
    phases: dict[str, float]
    trace: bytes


class PrefixNode(msgspec.Struct, frozen=True, kw_only=True):
    """Pages of the prefix cache, one after the other, that are used alike. None of their text."""

    parent: int | None
    """Place among `Outlined.nodes` of what it continues; always an earlier one."""
    isolation: str
    """`Sharing.isolation` of those who may use it."""
    pages: int
    tokens: int
    tokens_below: int
    """Its own and those of all that continue it, shown or not."""
    refs: int
    """Sequences that hold it now."""
    pinned: bool
    tags: tuple[str, ...] | None
    """The first ones in their order; None: they are not known, so any purge takes it."""
    num_tags: int | None
    age_s: float
    """Since its oldest page was computed, or brought from disk."""
    unused_s: float
    """Since a request last came by."""


class Outlined(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The prefix tree; its largest nodes by what lies below them."""

    num_nodes: int
    """All there are."""
    num_tokens: int
    nodes: tuple[PrefixNode, ...]


class Occupancy(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Numbers of now, but for those that say otherwise."""

    num_pages: int
    free_pages: int
    """Held by no sequence and not pinned: memory for whoever comes."""
    cached_pages: int = 0
    """In the prefix cache, held or not."""
    pinned_pages: int = 0
    disk_pages: int = 0
    swapped_pages: int = 0
    running: int
    waiting: int
    preemptions: int
    """Since the start."""
    swaps: int = 0
    """Preemptions since the start whose pages were copied instead of computed anew."""
    prompt_tokens: int = 0
    """Of the requests admitted since the start."""
    cached_tokens: int = 0
    """Of these, found in the prefix cache."""
    restored_tokens: int = 0
    """Brought back from disk since the start."""
    generated_tokens: int = 0
    """Of all answers since the start, those that nobody waited for to the end too."""
    steps: int
    restarts: int = 0
    """Times that the process died and was started again, as its parent counts them."""
    attention_calls: dict[str, int] = {}
    """Since the start, by what served: `cpp`, `numba`, `triton` or `torch`; one a layer and step.
    """


ToWorker = Configure | Generate | Abort | Inspect | Purge | Profile | Outline
FromWorker = (
    Loading | Ready | Unusable | Started | Delta | Finished | Failed
    | Occupancy | Purged | Profiled | Outlined
)  # fmt: skip


def frame(message: ToWorker | FromWorker) -> bytes:
    """A message as it goes over the socket."""
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameBuffer:
    """Cuts a byte stream into frame bodies. Raises ValueError on a length beyond all reason."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields each body that is now whole; keeps the rest."""
        self._pending += data
        while len(self._pending) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._pending)
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(self._pending) < end:
                return
            body = bytes(self._pending[_LENGTH.size : end])
            del self._pending[:end]
            yield body
