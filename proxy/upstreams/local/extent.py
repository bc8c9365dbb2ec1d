"""Where a JSON value ends that comes in pieces."""

_OPENING = "{["
_CLOSING = "}]"
_SPACE = " \t\r\n"


class JsonExtent:
    """Of one object or list; brackets outside of strings are counted, nothing else is checked."""

    def __init__(self) -> None:
        self.broken = False
        """It begins as neither."""
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> int | None:
        """Where in this piece the value ends (after its last character); None before its end."""
        for at, char in enumerate(text):
            if self._depth == 0 and char not in _OPENING:
                if char in _SPACE:
                    continue
                self.broken = True
                return None
            if self._in_string:
                self._read_string(char)
            elif self._closes(char):
                return at + 1
        return None

    def _read_string(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False

    def _closes(self, char: str) -> bool:
        """Outside of strings: this is the bracket that ends the value."""
        if char == '"':
            self._in_string = True
        elif char in _OPENING:
            self._depth += 1
        elif char in _CLOSING:
            self._depth -= 1
        return self._depth == 0
