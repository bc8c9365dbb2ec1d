"""What the parent and its workers say to each other, over one Unix socket a worker.

A line is a JSON object. Both sides ask, and both answer, any number at once, in any order:

    parent ── Begin, Adopt, Remember, Count, Holds, Report, Recall, Recollect, Forget,
              Finish ──> worker
    worker ── Said, Loaded, Reload, CountAll, Report, Recall, Recollect, Forget ──> parent
"""

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable

import msgspec

from proxy.auditing.reports import Verdict
from proxy.counts import Counts
from proxy.journal.erasure import Erasure
from proxy.recollection import Remembered
from proxy.reload import ReloadReport
from proxy.seen import Seen

_MAX_LINE_BYTES = 64 * 2**20


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first question. Answered by `Done` when the worker listens, or by `Refused`."""

    path: str
    """Of the config; only named, never read."""
    text: str
    data: tuple[tuple[int, str], ...]
    """Descriptor and address of each socket that clients connect to."""
    admin: tuple[int, str]
    index: int
    metrics: str
    """Folder of the counters of all workers."""
    engines: dict[str, str]
    """Sockets of the engines, by upstream."""
    reloaded: ReloadReport | None


class Adopt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Bring this config into force. Answered by `Adopted` or `Refused`."""

    text: str
    engines: dict[str, str]


class Remember(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How the last reload went."""

    report: ReloadReport


class Count(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Answered by `Counted`."""


class Finish(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Stop; the process ends when its requests have."""

    in_a_hurry: bool


class Said(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A step of the start, for the person who waits."""

    line: str


class Loaded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The models are there, or will not come."""

    models: tuple[str, ...]


class Reload(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Read the config again, everywhere. Answered by `Reloaded`."""


class CountAll(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Answered by `CountedAll`."""


class Holds(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Whether a worker gave answers by meaning under an id. Answered by `Reported`."""

    request_id: str


class Report(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a user says of an answer. The parent asks the one worker that gave it. Answered by
    `Reported`."""

    request_id: str
    verdict: Verdict


class Reported(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`known`: that worker, or one of all, has given the answer."""

    known: bool


class Recall(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The latest requests, so many. The parent asks every worker. Answered by `Recalled`."""

    limit: int


class Recalled(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Newest first."""

    requests: tuple[Seen, ...]


class Recollect(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request by its id. The parent asks every worker. Answered by `Recollected`."""

    request_id: str
    tenant: str | None


class Recollected(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """None: not remembered."""

    remembered: Remembered | None


class Forget(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Drop the requests whose data is erased. The parent asks every worker. Answered by
    `Forgotten`."""

    erasure: Erasure


class Forgotten(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    num_dropped: int


class Done(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """So it is."""


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """It cannot be; nothing has changed."""

    problems: tuple[str, ...]


class Adopted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The config is in force here."""

    ignored: tuple[str, ...]


class Reloaded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    report: ReloadReport


class Counted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    counts: Counts


class CountedAll(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    counts: tuple[Counts, ...]


OfRecords = Recall | Recollect | Forget
Part = Recalled | Recollected | Forgotten
"""Of the records, what one worker has; or all of them together."""

Question = (
    Begin | Adopt | Remember | Count | Finish | Said | Loaded | Reload | CountAll | Holds
    | Report | OfRecords
)  # fmt: skip
Answer = Done | Refused | Adopted | Reloaded | Counted | CountedAll | Reported | Part


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A question or the answer to it; `number` counts the questions of who asked."""

    number: int
    question: Question | None = None
    answer: Answer | None = None


class Gone(Exception):
    """The other process has ended, or is about to."""


class Channel:
    """One end of the socket."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        reply: Callable[[Question], Awaitable[Answer]],
    ) -> None:
        """`reply` answers what the other end asks; each question gets a task of its own."""
        self._reader = reader
        self._writer = writer
        self._reply = reply
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._replying: set[asyncio.Task[None]] = set()

    async def ask(self, question: Question) -> Answer:
        """Raises Gone."""
        if self._writer.is_closing():
            raise Gone
        number = next(self._numbers)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._write(Line(number=number, question=question))
            return await answer
        finally:
            del self._waiting[number]

    def tell(self, question: Question) -> None:
        """Ask, and do not wait for the answer. A no-op when the other end is gone."""
        self._write(Line(number=next(self._numbers), question=question))

    async def run(self) -> None:
        """Returns when the other end has closed."""
        decoder = msgspec.json.Decoder(Line)
        try:
            while data := await self._reader.readline():
                self._take(decoder.decode(data))
        except ConnectionError:
            pass
        finally:
            self._writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(Gone())
            for task in self._replying:
                task.cancel()

    def _take(self, line: Line) -> None:
        if line.question is not None:
            task = asyncio.create_task(self._answer(line.number, line.question))
            self._replying.add(task)
            task.add_done_callback(self._replying.discard)
        elif line.answer is not None:
            waiting = self._waiting.get(line.number)
            if waiting is not None and not waiting.done():
                waiting.set_result(line.answer)

    async def _answer(self, number: int, question: Question) -> None:
        self._write(Line(number=number, answer=await self._reply(question)))

    def _write(self, line: Line) -> None:
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(line) + b"\n")


async def open_channel(
    descriptor: int, *, reply: Callable[[Question], Awaitable[Answer]]
) -> Channel:
    """Over a connected Unix socket, which belongs to the channel from now on."""
    connected = socket.socket(fileno=descriptor)
    reader, writer = await asyncio.open_unix_connection(sock=connected, limit=_MAX_LINE_BYTES)
    return Channel(reader, writer, reply=reply)
