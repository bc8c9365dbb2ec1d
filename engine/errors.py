"""Errors of the engine.

EngineError
├── ModelUnusable     the model cannot be found, read or run; trying again does not help
├── RequestRefused    the request can never be served; carries what OpenAI's error shape needs
├── GrammarFault      the grammar of a choice gave out while it was being written
└── EngineDown        the process is not there: it was closed, or never started
    ├── EngineLate    it did not become ready in time; it goes on trying
    └── EngineDied    it died while this request was in flight
"""


class EngineError(Exception):
    """Root of everything that the engine raises on purpose."""


class ModelUnusable(EngineError):
    """Missing file, unknown architecture, or no room for a single page."""


class RequestRefused(EngineError):
    """`param` names the field at fault, `code` is OpenAI's machine-readable word, or None."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class GrammarFault(EngineError):
    """Too complex to go on with; other choices and requests are not concerned."""


class EngineDown(EngineError):
    """Nothing was sent to the engine; another try later may succeed."""


class EngineLate(EngineDown):
    """It still loads, or does not come up again and again."""


class EngineDied(EngineDown):
    """The process ended in the middle of a request."""
