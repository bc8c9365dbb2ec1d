"""Server-sent events out of a byte stream, whatever its chunking (WHATWG HTML, section 9.2).

A frame is one whole event in normal form: `data: …\\n\\n`, with an `event: …` line before it where
there was one. Comments become frames of their own, `: …\\n\\n`. `id` and `retry` fields and events
without data are dropped: OpenAI's clients fail on them.
"""

from proxy.errors import RejoinderError

MAX_EVENT_BYTES = 64 * 2**20
"""Far above any answer; a server that never ends an event must not fill the memory."""

_BOM = b"\xef\xbb\xbf"


class EventTooLarge(RejoinderError):
    """The other side sends no events, only bytes."""


class EventParser:
    """Collects bytes until an event is whole. Linear in the bytes fed; lines may have any length,
    a whole event up to `MAX_EVENT_BYTES`."""

    __slots__ = ("_after_cr", "_fresh", "_part_bytes", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of the unfinished event, with all line ends as LF
        self._part_bytes = 0
        self._after_cr = False  # an LF that comes next belongs to the CR before it
        self._fresh = True  # nothing has come yet, so a byte order mark may

    @property
    def pending(self) -> bool:
        """Bytes of an unfinished event remain."""
        return bool(self._parts)

    def feed(self, data: bytes) -> list[bytes]:
        """Frames that became whole with `data`, in order. Raises `EventTooLarge`."""
        if not self._parts and _is_one_frame(data):  # what most servers send
            self._after_cr = self._fresh = False
            return [data]
        frames: list[bytes] = []
        for block in self._blocks(self._with_lf(data)):
            if block.startswith(b"data: ") and b"\n" not in block and len(block) > 6:
                frames.append(block + b"\n\n")
            else:
                frames += _normal(block)
        return frames

    def flush(self) -> list[bytes]:
        """Frames of what remains at the end of the stream, taken as if its blank line had come.

        Only for a caller that knows how to tell a whole last event from a cut one.
        """
        rest = b"".join(self._parts)
        self._parts.clear()
        return _normal(rest.strip(b"\n")) if rest else []

    def _with_lf(self, data: bytes) -> bytes:
        if self._fresh and data:
            data = self._without_mark(data)
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _without_mark(self, data: bytes) -> bytes:
        head = b"".join(self._parts) + data
        self._parts.clear()
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._parts.append(head)
            return b""
        self._fresh = False
        return head.removeprefix(_BOM)

    def _blocks(self, data: bytes) -> list[bytes]:
        """Lines between blank lines, joined; the unfinished rest stays in `_parts`."""
        parts = self._parts
        blocks: list[bytes] = []
        if parts and data.startswith(b"\n") and parts[-1].endswith(b"\n"):
            blocks.append(b"".join(parts).rstrip(b"\n"))
            parts.clear()
        first, *others = data.split(b"\n\n")
        if others:
            blocks.append(b"".join((*parts, first)))
            parts.clear()
            *whole, first = others
            blocks += whole
        rest = first if parts else first.lstrip(b"\n")
        self._part_bytes = len(rest) + (self._part_bytes if parts else 0)
        if self._part_bytes > MAX_EVENT_BYTES:
            raise EventTooLarge(f"an event of a stream is larger than {MAX_EVENT_BYTES} bytes")
        if rest:
            parts.append(rest)
        return [block.strip(b"\n") for block in blocks]


def frame_data(frame: bytes) -> bytes:
    """The data of a frame: what a client gets to decode. Empty for a comment."""
    if frame.startswith(b"data: ") and frame.find(b"\n") == len(frame) - 2:
        return frame[6:-2]
    lines = frame[:-2].split(b"\n")
    return b"\n".join(line[6:] for line in lines if line.startswith(b"data: "))


def frame_event(frame: bytes) -> bytes:
    """The event name of a frame; empty if it has none."""
    if not frame.startswith(b"event: "):
        return b""
    return frame[7 : frame.index(b"\n")]


def split_frames(joined: bytes) -> list[bytes]:
    """The frames of a run of whole frames in normal form."""
    return [part + b"\n\n" for part in joined.split(b"\n\n")[:-1]]


def _is_one_frame(data: bytes) -> bool:
    return (
        data.startswith(b"data: ")
        and data.endswith(b"}\n\n")
        and data.count(b"\n") == 2
        and b"\r" not in data
    )


def _normal(block: bytes) -> list[bytes]:
    """Frames of one block of lines: its comments first, then its event if it has data."""
    event = b""
    data: list[bytes] = []
    frames: list[bytes] = []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if line.startswith(b":"):
            frames.append(b": " + value + b"\n\n")
        elif name == b"data":
            data.append(value)
        elif name == b"event":
            event = value
    if any(data):
        head = b"event: " + event + b"\n" if event else b""
        frames.append(head + b"".join(b"data: " + line + b"\n" for line in data) + b"\n")
    return frames
