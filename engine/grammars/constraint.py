"""What the text of an answer must be, as a request says it."""

import msgspec


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the answer may call."""

    name: str
    schema: str
    """JSON Schema of the arguments, an object, as JSON text."""
    strict: bool = False


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """JSON of `schema`, calls of `tools`, or one of the two where both are given. Hashable."""

    schema: str | None = None
    """JSON Schema, an object, as JSON text."""
    strict: bool = False
    """Refuse a schema with keywords that no grammar can enforce, instead of ignoring them."""
    tools: tuple[Function, ...] = ()
    parallel: bool = True
    """Several calls may follow one another."""

    @property
    def param(self) -> str:
        """The field of OpenAI's API that it came from, for errors."""
        return "tools" if self.schema is None else "response_format"
