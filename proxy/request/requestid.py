"""The id of a request: it stands in its answer, in the log, and in what the upstream is asked."""

import random
import re

from proxy.call import Headers

_PLAIN = re.compile(rb"[\w.:-]{1,128}")


def request_id(headers: Headers) -> str:
    """The client's own `x-request-id`, where it has a plain form; else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _PLAIN.fullmatch(value):
            return value.decode()
    return f"req_{random.getrandbits(96):024x}"
