"""How a command ends that could not do its work."""

OK = 0
FAILED = 1
MISUSED = 2
"""The command line or the config is wrong: trying again as it is cannot help."""
PARTIAL = 3
"""Done, but not all of what was asked could be."""


class CommandFailed(Exception):
    """The message is one line for the user; `code` is the exit code."""

    def __init__(self, message: str, *, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code
