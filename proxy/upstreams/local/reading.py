"""One choice of an answer as it is read, told apart into text and calls."""

from collections.abc import Callable, Sequence

from proxy.upstreams.local.answer import TokenDetail
from proxy.upstreams.local.calls import Called, Heard, Reader, Said


class Reading:
    """Log-probabilities wait for the text of their tokens, and are dropped where that turned out
    to be a call."""

    def __init__(self, reader: Callable[[], Reader] | None) -> None:
        """`reader`: where there are tools."""
        self._reader = reader() if reader is not None else None
        self._held: list[TokenDetail] | None = None
        self._calls = False

    def push(self, text: str) -> list[Heard]:
        """The next piece of the answer."""
        if self._reader is None:
            return [Said(text=text)] if text else []
        return self._noted(self._reader.push(text))

    def close(self) -> list[Heard]:
        """What was held back, at the end of the answer."""
        return [] if self._reader is None else self._noted(self._reader.close())

    def hold(self, logprobs: Sequence[TokenDetail] | None) -> None:
        """Those of the piece that is pushed next; None where none are wanted."""
        if logprobs is not None:
            self._held = [*(self._held or ()), *logprobs]

    def release(self) -> list[TokenDetail] | None:
        """Those that belong to what was just heard."""
        held, self._held = self._held, None if self._held is None else []
        return held

    def finish_reason(self, of_engine: str) -> str:
        """In the words of chat completions."""
        return "tool_calls" if self._calls and of_engine == "stop" else of_engine

    def _noted(self, heard: list[Heard]) -> list[Heard]:
        self._calls = self._calls or any(isinstance(one, Called) for one in heard)
        return heard
