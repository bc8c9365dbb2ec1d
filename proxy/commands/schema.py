"""`rejoinder schema`: the config file's JSON Schema."""

import sys
from typing import Annotated

from cyclopts import Parameter

from proxy.commands.failure import OK
from proxy.commands.output import print_json


def schema(*, as_markdown: Annotated[bool, Parameter(name="--markdown")] = False) -> int:
    """Print the JSON Schema of the config file: every key with its meaning, unit and default.

    Editors complete and check a config by it; the first line of a config may name it:
    `# yaml-language-server: $schema=rejoinder.schema.json`

    **Examples**

        rejoinder schema > rejoinder.schema.json

        rejoinder schema --markdown > docs/configuration.md

    Parameters
    ----------
    as_markdown
        Print the same as a page to read.
    """
    if as_markdown:
        from proxy.settings.reference import markdown

        sys.stdout.write(markdown())
        return OK
    from proxy.settings.schema import schema as config_schema

    print_json(config_schema())
    return OK
