"""The engine's process: `python -m engine.process.worker`, with its end of a socket pair as stdin.

The main thread loads the model, then steps; a second thread reads the socket. When the other end
closes, because the parent is done or dead, the process ends.
"""

import contextlib
import logging
import os
import queue
import socket
import threading
from collections.abc import Iterable, Sequence

import msgspec

from engine.errors import ModelUnusable, RequestRefused
from engine.grammars.compiling import Compiled, Compiler
from engine.grammars.grammar import Grammar
from engine.loading import Loaded, load
from engine.memory import is_shortage
from engine.process.protocol import (
    Abort,
    Configure,
    Delta,
    Failed,
    FrameBuffer,
    FromWorker,
    Generate,
    Inspect,
    Loading,
    Outline,
    Profile,
    Purge,
    Request,
    Started,
    ToWorker,
    Unusable,
    frame,
)
from engine.sources.weights import is_at_hand

_RECEIVE_BYTES = 1 << 16
_STDIN = 0

log = logging.getLogger("engine.process.worker")

Inbox = queue.SimpleQueue[ToWorker | Compiled]


class Worker:
    """Serves one client."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._inbox: Inbox = queue.SimpleQueue()

    def run(self) -> None:
        """Returns when the model cannot be used; otherwise ends with the process."""
        threading.Thread(target=self._receive, name="receive", daemon=True).start()
        configure = self._inbox.get()
        assert isinstance(configure, Configure), configure
        try:
            if not is_at_hand(configure.config.model):
                self._send([Loading(fraction=0.0, downloading=True)])
            loaded = load(configure.config, self._progress)
        except ModelUnusable as error:
            log.error("model unusable: %s", error)
            self._send([Unusable(message=str(error))])
            return
        except Exception as error:  # loaders raise anything; the parent must hear why
            log.exception("model unusable")
            message = f"the model cannot be loaded: {error!r}"
            self._send([Unusable(message=message, passing=is_shortage(error))])
            return
        self._send([loaded.ready])
        self._serve(loaded)

    def _serve(self, loaded: Loaded) -> None:
        engine = loaded.engine
        compiler = Compiler(loaded.grammars, self._inbox.put)
        while True:
            patience_s = 0.0 if engine.busy else loaded.profiler.patience_s
            for message in self._commands(patience_s=patience_s):
                self._send(_obey(message, loaded, compiler))
            events, profiles = loaded.profiler.step()
            self._send([*events, *profiles])

    def _commands(self, *, patience_s: float | None) -> list[ToWorker | Compiled]:
        """All that came in; sleeps so long, None: forever, until something does."""
        commands = []
        if patience_s != 0.0:
            with contextlib.suppress(queue.Empty):
                commands.append(self._inbox.get(timeout=patience_s))
        while not self._inbox.empty():
            commands.append(self._inbox.get())
        return commands

    def _progress(self, fraction: float) -> None:
        self._send([Loading(fraction=fraction)])

    def _send(self, messages: Iterable[FromWorker]) -> None:
        if data := b"".join(map(frame, messages)):
            self._connection.sendall(data)

    def _receive(self) -> None:
        # The main thread may be deep in a matrix product; nothing there needs tidying up.
        try:
            self._read()
        except ConnectionError:
            pass  # a parent that was killed with something unread
        except Exception:  # whatever it was, the worker ends and says so
            log.exception("what came from the parent cannot be understood")
        finally:
            os._exit(0)

    def _read(self) -> None:
        """Returns when the other end has closed."""
        decoder = msgspec.msgpack.Decoder(ToWorker)
        frames = FrameBuffer()
        while data := self._connection.recv(_RECEIVE_BYTES):
            for body in frames.feed(data):
                self._inbox.put(decoder.decode(body))


def _obey(message: ToWorker | Compiled, loaded: Loaded, compiler: Compiler) -> Sequence[FromWorker]:
    match message:
        case Generate():
            return _begin(message, loaded, compiler)
        case Compiled():
            return _resume(message, loaded) if compiler.take(message.request_id) else ()
        case Abort(request_id=request_id):
            compiler.drop(request_id)
            loaded.engine.abort(request_id)
            return ()
        case Inspect():
            return (loaded.engine.occupancy(),)
        case Purge():
            return (loaded.engine.purge(message),)
        case Outline():
            return (loaded.engine.outline(message),)
        case Profile():
            loaded.profiler.ask(message)
            return ()
        case Configure():
            raise AssertionError("configured twice")


def _begin(message: Generate, loaded: Loaded, compiler: Compiler) -> Sequence[FromWorker]:
    constraint = message.request.constraint
    if constraint is None:
        return _admit(message.request_id, message.request, loaded, grammar=None)
    grammar = compiler.kept(constraint)
    if grammar is None:
        try:
            compiler.submit(message.request_id, message.request, constraint)
        except RequestRefused as error:
            return (_failed(message.request_id, error),)
        return ()
    return _admit(message.request_id, message.request, loaded, grammar=grammar)


def _resume(compiled: Compiled, loaded: Loaded) -> Sequence[FromWorker]:
    if isinstance(compiled.outcome, RequestRefused):
        return (_failed(compiled.request_id, compiled.outcome),)
    return _admit(compiled.request_id, compiled.request, loaded, grammar=compiled.outcome)


def _admit(
    request_id: int, request: Request, loaded: Loaded, *, grammar: Grammar | None
) -> Sequence[FromWorker]:
    prompts = loaded.prompts
    try:
        prompt_ids = prompts.encode(request)
        loaded.engine.add(
            request_id,
            prompt_ids,
            sampling=request.sampling,
            num_choices=request.num_choices,
            sharing=request.sharing,
            grammar=grammar,
            shown_ids=prompts.shown_ids(request),
            long_context=request.long_context,
        )
        echo = prompts.text(request) if request.echo else ""
    except RequestRefused as error:
        return (_failed(request_id, error),)
    except Exception:  # one request must not end those of everybody else
        log.exception("request %d cannot be admitted", request_id)
        loaded.engine.abort(request_id)
        return (_failed(request_id, RequestRefused("The engine cannot read this request.")),)
    started = Started(request_id=request_id, prompt_tokens=len(prompt_ids))
    echoes = (
        Delta(request_id=request_id, index=index, text=echo) for index in range(request.num_choices)
    )
    return (started, *echoes) if request.echo else (started,)


def _failed(request_id: int, error: RequestRefused) -> Failed:
    return Failed(request_id=request_id, message=error.message, param=error.param, code=error.code)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    Worker(socket.socket(fileno=os.dup(_STDIN))).run()
