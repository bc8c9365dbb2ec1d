"""Grammars are compiled beside the steps of the engine, which a large schema must not hold up."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from engine.errors import EngineError, RequestRefused
from engine.grammars.constraint import Constraint
from engine.grammars.grammar import Grammar, Grammars
from engine.process.protocol import Request

_MAX_WAITING = 256
"""Requests, of which each may take up to seconds."""


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A request that waited for its grammar, and what became of that."""

    request_id: int
    request: Request
    outcome: Grammar | RequestRefused


class Compiler:
    """One thread; grammars wait for one another, not for anything else. All methods are called by
    the thread that steps."""

    def __init__(self, grammars: Grammars, deliver: Callable[[Compiled], None]) -> None:
        """`deliver` is called by the compiling thread."""
        self._grammars = grammars
        self._deliver = deliver
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compile")
        self._waiting: dict[int, Future[None]] = {}

    def kept(self, constraint: Constraint) -> Grammar | None:
        """A grammar that needs no waiting."""
        return self._grammars.kept(constraint)

    def submit(self, request_id: int, request: Request, constraint: Constraint) -> None:
        """`Compiled` is delivered later, perhaps also for a request that was dropped meanwhile.
        Raises RequestRefused where too many wait already."""
        if len(self._waiting) >= _MAX_WAITING:
            raise RequestRefused(
                "Too many grammars wait to be compiled; try again later.", code="grammars_busy"
            )
        job = self._thread.submit(self._compile, request_id, request, constraint)
        self._waiting[request_id] = job

    def drop(self, request_id: int) -> None:
        """The request was aborted. A no-op when it doesn't wait."""
        job = self._waiting.pop(request_id, None)
        if job is not None:
            job.cancel()  # what nobody waits for holds up nobody

    def take(self, request_id: int) -> bool:
        """Whether the request of a `Compiled` is still wanted."""
        return self._waiting.pop(request_id, None) is not None

    def _compile(self, request_id: int, request: Request, constraint: Constraint) -> None:
        outcome: Grammar | RequestRefused
        try:
            outcome = self._grammars.compile(constraint)
        except RequestRefused as error:
            outcome = error
        except (EngineError, ValueError, RecursionError, RuntimeError) as error:
            outcome = RequestRefused(f"The grammar failed: {error}", param=constraint.param)
        self._deliver(Compiled(request_id=request_id, request=request, outcome=outcome))
