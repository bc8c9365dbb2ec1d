"""Grammars are compiled beside the steps of the engine, which a large schema must not hold up."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from engine.errors import EngineError, RequestRefused
from engine.grammars.constraint import Constraint
from engine.grammars.grammar import Grammar, Grammars
from engine.process.protocol import Request


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
        self._waiting: set[int] = set()

    def kept(self, constraint: Constraint) -> Grammar | None:
        """A grammar that needs no waiting."""
        return self._grammars.kept(constraint)

    def submit(self, request_id: int, request: Request, constraint: Constraint) -> None:
        """`Compiled` is delivered later, also for a request that was dropped meanwhile."""
        self._waiting.add(request_id)
        self._thread.submit(self._compile, request_id, request, constraint)

    def drop(self, request_id: int) -> None:
        """The request was aborted. A no-op when it doesn't wait."""
        self._waiting.discard(request_id)

    def take(self, request_id: int) -> bool:
        """Whether the request of a `Compiled` is still wanted."""
        wanted = request_id in self._waiting
        self._waiting.discard(request_id)
        return wanted

    def _compile(self, request_id: int, request: Request, constraint: Constraint) -> None:
        outcome: Grammar | RequestRefused
        try:
            outcome = self._grammars.compile(constraint)
        except RequestRefused as error:
            outcome = error
        except (EngineError, ValueError, RecursionError, RuntimeError) as error:
            outcome = RequestRefused(f"The grammar failed: {error}", param=constraint.param)
        self._deliver(Compiled(request_id=request_id, request=request, outcome=outcome))
