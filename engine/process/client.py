"""The engine as the rest of the program sees it. Imports no torch: that is the worker's."""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar, assert_never

import msgspec

from engine.config import EngineConfig
from engine.errors import EngineDied, EngineDown, EngineLate, ModelUnusable
from engine.process.attached import Attached
from engine.process.generation import Generation
from engine.process.protocol import (
    Abort,
    Delta,
    Failed,
    Finished,
    Generate,
    Inspect,
    Loading,
    Occupancy,
    Outline,
    Outlined,
    Profile,
    Profiled,
    Purge,
    Purged,
    Ready,
    Request,
    Started,
    ToWorker,
    Unusable,
)
from engine.process.spawning import WorkerProcess

_FIRST_BACKOFF_S = 0.25
_MAX_BACKOFF_S = 30.0
_HEALTHY_S = 60.0
"""A worker that was ready for so long has earned a quick restart."""

_DIED = "the engine process died and is being restarted"

T = TypeVar("T")

log = logging.getLogger("engine.process.client")


class EngineClient:
    """Starts the worker process, restarts it when it dies, and speaks to it. One event loop."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        on_progress: Callable[[Loading], None] = lambda _: None,
        shared: str | None = None,
    ) -> None:
        """`on_progress` hears how far the model is loaded, also after restarts. `shared`: the
        socket of a relay (`process.relay`), whose worker is used instead of one of our own."""
        self._config = config
        self._shared = shared
        self._on_progress = on_progress
        self._worker: WorkerProcess | Attached | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._generations: dict[int, Generation] = {}
        # Answers to these carry no id: they come in the order of the questions.
        self._inspections: deque[asyncio.Future[Occupancy]] = deque()
        self._purges: deque[asyncio.Future[Purged]] = deque()
        self._profiles: deque[asyncio.Future[Profiled]] = deque()
        self._outlines: deque[asyncio.Future[Outlined]] = deque()
        self._request_ids = itertools.count(1)
        self._changed = asyncio.Event()
        self._ready: Ready | None = None
        self._trouble = "not started"
        self._reason = _DIED
        self._ready_since_s: float | None = None
        self._num_restarts = 0

    async def start(self) -> None:
        """Returns at once; the model loads in the background."""
        if self._supervisor is None:
            self._trouble = "loading"
            self._supervisor = asyncio.create_task(self._supervise(), name="engine supervisor")
            self._supervisor.add_done_callback(lambda _: self._notify())

    def state(self) -> str:
        """`ready`, `loading`, `downloading`, or why it cannot answer."""
        return "ready" if self._ready is not None else self._trouble

    @property
    def worker_pid(self) -> int | None:
        """Of the process that runs now, for whoever watches its memory."""
        return None if self._worker is None else self._worker.pid

    async def ready(self, *, timeout_s: float) -> Ready:
        """Waits while the model loads. Raises ModelUnusable, EngineLate when it takes too long, or
        EngineDown when it was closed or never started."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._ready is None:
                    if self._supervisor is None:
                        raise EngineDown(f"the engine is not running: {self._trouble}")
                    if self._supervisor.done():
                        raise ModelUnusable(self._trouble)
                    await self._changed.wait()
        except TimeoutError as error:
            raise EngineLate(f"the engine is not ready: {self._trouble}") from error
        return self._ready

    async def down(self) -> None:
        """Returns when the worker is not ready, or not any more."""
        while self._ready is not None:
            await self._changed.wait()

    def generate(self, *requests: Request) -> Generation:
        """Sends them as one, whose choices follow one another. Raises EngineDown unless `ready`."""
        worker = self._running()
        sent = {next(self._request_ids): request for request in requests}
        generation = Generation(
            {request_id: request.num_choices for request_id, request in sent.items()},
            on_close=lambda: self._forget(sent),
        )
        worker.write(*(Generate(request_id=n, request=request) for n, request in sent.items()))
        # Not before: what cannot be written raises.
        self._generations.update(dict.fromkeys(sent, generation))
        return generation

    async def inspect(self) -> Occupancy:
        """What is in use, after the step that runs now. Raises EngineDown."""
        heard = await self._ask(Inspect(), self._inspections)
        if self._shared is not None:
            return heard
        return msgspec.structs.replace(heard, restarts=self._num_restarts)

    async def profile(self, wanted: Profile) -> Profiled:
        """Raises EngineDown."""
        return await self._ask(wanted, self._profiles)

    async def outline(self, wanted: Outline) -> Outlined:
        """The prefix tree, after the step that runs now. Raises EngineDown."""
        return await self._ask(wanted, self._outlines)

    async def purge(self, purge: Purge) -> Purged:
        """When it returns no request that is sent later meets what the purge covers. An engine that
        is not there has no pages; those that it finds on disk when it is back have to have seen
        every purge that its requests have seen."""
        try:
            return await self._ask(purge, self._purges)
        except EngineDown:
            return Purged(num_pages=0)

    async def close(self) -> None:
        """Ends the process; requests in flight fail. Idempotent."""
        supervisor, self._supervisor = self._supervisor, None
        self._trouble = "closed"
        if supervisor is not None:
            supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await supervisor
        self._notify()

    async def _ask(self, question: ToWorker, waiting: deque[asyncio.Future[T]]) -> T:
        """Raises EngineDown."""
        worker = self._running()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiting.append(answer)
        worker.write(question)
        return await answer

    def _running(self) -> WorkerProcess | Attached:
        if self._worker is None or self._ready is None:
            raise EngineDown(f"the engine is not ready: {self._trouble}")
        return self._worker

    async def _supervise(self) -> None:
        """Returns only when the model turned out to be unusable."""
        loop = asyncio.get_running_loop()
        backoff_s = _FIRST_BACKOFF_S
        while True:
            self._ready_since_s = None
            usable = await self._live()
            if not usable:
                return
            since_s = self._ready_since_s
            if since_s is not None and loop.time() - since_s > _HEALTHY_S:
                backoff_s = _FIRST_BACKOFF_S
            log.warning("engine worker died, restarting in %.2f s", backoff_s)
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)
            self._trouble = "loading"
            self._num_restarts += 1

    async def _live(self) -> bool:
        """One life of a worker. False when it found that it cannot work with this model."""
        usable = True
        self._reason = _DIED
        try:
            self._worker = await self._start_or_join()
            while messages := await self._worker.read():
                for message in messages:
                    if isinstance(message, Unusable):
                        self._reason, usable = message.message, message.passing
                    else:
                        self._handle(message)
        except (OSError, ValueError, msgspec.DecodeError) as error:
            log.error("no engine worker to speak to: %s", error)  # a death like any other
        finally:
            await self._bury()
        return usable

    async def _bury(self) -> None:
        """The worker is gone, or was never there."""
        worker, self._worker, self._ready = self._worker, None, None
        if self._supervisor is not None:
            self._trouble = self._reason
        self._notify()
        self._fail_all(EngineDied("the engine process ended in the middle of the request"))
        if worker is not None:
            exit_code = await asyncio.shield(worker.end())
            log.info("engine worker %s ended with %d", worker.pid or "of others", exit_code)

    async def _start_or_join(self) -> WorkerProcess | Attached:
        if self._shared is not None:
            return await Attached.connect(self._shared)
        return await WorkerProcess.spawn(self._config)

    def _handle(
        self,
        message: Loading
        | Ready
        | Started
        | Delta
        | Finished
        | Failed
        | Occupancy
        | Purged
        | Profiled
        | Outlined,
    ) -> None:
        match message:
            case Loading(downloading=downloading):
                self._trouble = "downloading" if downloading else "loading"
                self._on_progress(message)
            case Ready():
                self._ready = message
                self._ready_since_s = asyncio.get_running_loop().time()
                self._notify()
            case Started() | Delta() | Finished() | Failed():
                generation = self._generations.get(message.request_id)
                if generation is not None:
                    generation.feed(message)
            case Occupancy():
                _answer(self._inspections, message)
            case Purged():
                _answer(self._purges, message)
            case Profiled():
                _answer(self._profiles, message)
            case Outlined():
                _answer(self._outlines, message)
            case _:
                assert_never(message)

    def _forget(self, request_ids: Iterable[int]) -> None:
        """The consumer is done with them, or has had enough of them."""
        for request_id in request_ids:
            generation = self._generations.pop(request_id, None)
            if generation is not None and not generation.done and self._worker is not None:
                self._worker.write(Abort(request_id=request_id))

    def _fail_all(self, error: EngineDied) -> None:
        for generation in set(self._generations.values()):
            generation.fail(error)
        self._generations.clear()
        _give_up(self._inspections, error)
        _give_up(self._purges, error)
        _give_up(self._profiles, error)
        _give_up(self._outlines, error)

    def _notify(self) -> None:
        """Wake whoever waits for a change of state."""
        self._changed.set()
        self._changed = asyncio.Event()


def _answer(waiting: deque[asyncio.Future[T]], message: T) -> None:
    """To who asked first, unless they have gone."""
    answer = waiting.popleft()
    if not answer.done():
        answer.set_result(message)


def _give_up(waiting: deque[asyncio.Future[T]], error: EngineDied) -> None:
    for answer in waiting:
        if not answer.done():
            answer.set_exception(error)
    waiting.clear()
