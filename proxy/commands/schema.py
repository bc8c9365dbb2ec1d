"""`rejoinder schema`: the config file's JSON Schema."""

from proxy.commands.failure import OK
from proxy.commands.output import print_json


def schema() -> int:
    """Print the JSON Schema of the config file: every key with its meaning, unit and default.

    Editors complete and check a config by it; the first line of a config may name it:
    `# yaml-language-server: $schema=rejoinder.schema.json`

    **Examples**

        rejoinder schema > rejoinder.schema.json
    """
    from proxy.settings.schema import schema as config_schema

    print_json(config_schema())
    return OK
