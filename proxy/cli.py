"""The command line: its commands, and what becomes of their errors."""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Literal

from cyclopts import App, CycloptsError, Parameter

from proxy.commands.analyze import analyze
from proxy.commands.check import check
from proxy.commands.entries import entries
from proxy.commands.entry import entry
from proxy.commands.erase import erase
from proxy.commands.explain import explain
from proxy.commands.export import export
from proxy.commands.failure import FAILED, MISUSED, OK, CommandFailed
from proxy.commands.feedback import feedback
from proxy.commands.import_litellm import import_litellm
from proxy.commands.importing import import_
from proxy.commands.profile import profile
from proxy.commands.purge import purge
from proxy.commands.schema import schema
from proxy.commands.serve import serve
from proxy.commands.stats import stats
from proxy.commands.warm import warm
from proxy.errors import ConfigError

_COMMANDS = (
    *(serve, check, schema, import_litellm),
    *(stats, entries, entry, purge, feedback, explain, erase),
    *(export, import_, warm, analyze, profile),
)
"""Light to import: each imports what it works with when it is called."""

_EXIT_CODES = """
**Exit codes**

- 0: done
- 1: failed; trying again later may help
- 2: the command line, the config or the file is wrong; trying again as it is cannot help
- 3: done, but not all of what was asked could be (import-litellm)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Takes the process's own arguments by default."""
    try:
        code = _app()(arguments, exit_on_error=False, print_error=True)
    except CycloptsError:
        return MISUSED
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return MISUSED
    except CommandFailed as error:
        sys.stderr.write(f"rejoinder: {error}\n")
        return error.code
    except BrokenPipeError:
        # The reader (`head`) has left. Nothing more is written, not even what Python still buffers.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code if isinstance(code, int) else OK


def _app() -> App:
    app = App(
        name="rejoinder",
        help="An OpenAI-compatible caching reverse proxy with an embedded engine.",
        help_epilogue=_EXIT_CODES,
        version=version("rejoinder"),
        default_parameter=Parameter(negative=(), show_default=_shown_default),
        result_action="return_value",
    )
    for command in _COMMANDS:
        app.command(command)

    @app.command
    def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
        """Print a script that completes commands and options in your shell.

        **Examples**

            rejoinder completion bash > ~/.local/share/bash-completion/completions/rejoinder

            rejoinder completion zsh > ~/.zfunc/_rejoinder

        Parameters
        ----------
        shell
            Your shell.
        """
        sys.stdout.write(app.generate_completion(shell=shell))
        return OK

    return app


def _shown_default(value: object) -> object:
    """Nothing for what is simply off or empty."""
    return value or None


if __name__ == "__main__":
    sys.exit(main())
