"""What the parent and its workers say to each other, over one Unix socket a worker.

A message is JSON behind its length. Both sides ask, and both answer, any number at once, in any
order:

    parent ── Begin, Greet, Adopt, Remember, Finish, ToAll ──> worker
    worker ── Said, Loaded, Reload, ToAll ──> parent
"""

import asyncio
import itertools
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from proxy.processes.gathering import (
    Count,
    Counted,
    Forget,
    Forgotten,
    Held,
    Holds,
    Recall,
    Recalled,
    Recollect,
    Recollected,
    Report,
    Reported,
)
from proxy.processes.reload import ReloadReport

log = logging.getLogger("rejoinder.control")

_HEAD = struct.Struct(">Q")
"""In front of each message: its length."""


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


class Greet(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Answered by `Done`, at once: whoever does not is stuck."""


class Adopt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Bring this config into force. Answered by `Adopted` or `Refused`."""

    text: str
    engines: dict[str, str]


class Remember(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How the last reload went."""

    report: ReloadReport


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


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Answering raised an error, which the other process has logged."""

    problem: str


class Silent(msgspec.Struct, frozen=True, kw_only=True):
    """There was no answer in time: what is said of a process, not by one."""

    problem: str


ToAll = Count | Holds | Report | Recall | Recollect | Forget
"""The parent asks every worker, and answers with all their parts together."""

Question = Begin | Greet | Adopt | Remember | Finish | Said | Loaded | Reload | ToAll
Answer = (
    Done | Refused | Adopted | Reloaded | Failed
    | Counted | Held | Reported | Recalled | Recollected | Forgotten
)  # fmt: skip


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A question or the answer to it; `number` counts the questions of who asked."""

    number: int
    question: Question | None = None
    answer: Answer | None = None


class Unanswered(Exception):
    """The other process could not answer, and says why."""


class Stuck(Unanswered):
    """The other process does not answer at all."""


class Gone(Unanswered):
    """The other process has ended, or is about to."""


class Channel:
    """One end of the socket."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        reply: Callable[[Question], Awaitable[Answer]],
        name: str,
    ) -> None:
        """`reply` answers what the other end asks; each question gets a task of its own. `name`:
        of the other end, for people."""
        self.name = name
        self._reader = reader
        self._writer = writer
        self._reply = reply
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._replying: set[asyncio.Task[None]] = set()

    async def ask(self, question: Question) -> Answer:
        """Raises Unanswered, Gone."""
        if self._writer.is_closing():
            raise Gone
        number = next(self._numbers)
        heard: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = heard
        try:
            self._write(Message(number=number, question=question))
            answer = await heard
        finally:
            del self._waiting[number]
        if isinstance(answer, Failed):
            raise Unanswered(answer.problem)
        return answer

    def tell(self, question: Question) -> None:
        """Ask, and do not wait for the answer. A no-op when the other end is gone."""
        self._write(Message(number=next(self._numbers), question=question))

    async def run(self) -> None:
        """Returns when the other end has closed, or says what cannot be read."""
        decoder = msgspec.json.Decoder(Message)
        try:
            while True:
                head = await self._reader.readexactly(_HEAD.size)
                body = await self._reader.readexactly(*_HEAD.unpack(head))
                self._take(decoder.decode(body))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except msgspec.MsgspecError:
            # As where a worker was started again after another version had been installed.
            log.exception("the other process speaks another language; it is left alone")
        finally:
            self._writer.close()
            for heard in self._waiting.values():
                if not heard.done():
                    heard.set_exception(Gone())
            for task in self._replying:
                task.cancel()

    def _take(self, message: Message) -> None:
        if message.question is not None:
            task = asyncio.create_task(self._answer(message.number, message.question))
            self._replying.add(task)
            task.add_done_callback(self._replying.discard)
        elif message.answer is not None:
            heard = self._waiting.get(message.number)
            if heard is not None and not heard.done():
                heard.set_result(message.answer)

    async def _answer(self, number: int, question: Question) -> None:
        try:
            answer = await self._reply(question)
        except Exception as error:  # the asker must hear that there is no answer
            log.exception("%s cannot be answered", type(question).__name__)
            answer = Failed(problem=f"{type(error).__name__}: {error}")
        self._write(Message(number=number, answer=answer))

    def _write(self, message: Message) -> None:
        if not self._writer.is_closing():
            body = msgspec.json.encode(message)
            self._writer.write(_HEAD.pack(len(body)) + body)


async def open_channel(
    descriptor: int, *, reply: Callable[[Question], Awaitable[Answer]], name: str
) -> Channel:
    """Over a connected Unix socket, which belongs to the channel from now on."""
    connected = socket.socket(fileno=descriptor)
    reader, writer = await asyncio.open_unix_connection(sock=connected)
    return Channel(reader, writer, reply=reply, name=name)


async def ask_each(
    channels: Iterable[Channel], question: Question, *, within_s: float
) -> list[Answer | Silent]:
    """What each says; `Failed` of those that cannot, `Silent` of those that do not in time. Those
    that end meanwhile are left out."""
    asking = {asyncio.create_task(one.ask(question)): one.name for one in channels}
    if asking:
        await asyncio.wait(asking, timeout=within_s)
    heard = [_heard(task, name=name, within_s=within_s) for task, name in asking.items()]
    return [answer for answer in heard if answer is not None]


def _heard(asking: asyncio.Task[Answer], *, name: str, within_s: float) -> Answer | Silent | None:
    if not asking.done():
        asking.cancel()
        return Silent(problem=f"{name} does not answer within {within_s:g} s")
    error = asking.exception()
    if error is None:
        return asking.result()
    return None if isinstance(error, Gone) else Failed(problem=f"{name}: {error}")
