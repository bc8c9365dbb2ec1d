"""What an exact hit costs, in calls of Python functions: unlike its time, these are the same on
every machine, and each is half a microsecond or more of the server's."""

import json
import sys
from collections import Counter

from misbehaving import serving
from running import CONFIG, good, running

MOST_CALLS = 85
"""Between the server's call of the application and its return: a tenth more than it makes now. What
makes it more has to be worth it."""

BODY = json.dumps({"model": "test-1", "messages": [{"role": "user", "content": "Why?"}]}).encode()
SCOPE = {
    "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
    "server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2), "scheme": "http", "root_path": "",
    "method": "POST", "path": "/v1/chat/completions", "raw_path": b"/v1/chat/completions",
    "query_string": b"",
    "headers": [
        (b"host", b"127.0.0.1"), (b"content-type", b"application/json"),
        (b"authorization", b"Bearer sk-one"), (b"content-length", b"%d" % len(BODY)),
    ],
}  # fmt: skip


async def ask(application) -> tuple[dict[bytes, bytes], Counter[str]]:
    """The answer's headers, and the functions that were called for it."""
    sent, called = [], Counter()

    async def receive():
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message):
        sent.append(message)

    def note(frame, event, _argument):
        if event == "call":
            called[f"{frame.f_code.co_filename}: {frame.f_code.co_qualname}"] += 1

    answering = application(dict(SCOPE), receive, send)
    sys.setprofile(note)
    try:
        await answering
    finally:
        sys.setprofile(None)
    return dict(sent[0]["headers"]), called


async def test_an_exact_hit_makes_few_calls(tmp_path):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        headers = {"content-type": "application/json", "authorization": "Bearer sk-one"}
        await p.http.post(f"{p.url}/v1/chat/completions", content=BODY, headers=headers)
        for _ in range(3):  # what is remembered of a hit is remembered by then
            told, called = await ask(p.proxy.data)
            assert told[b"x-cache"] == b"exact"
        listed = "\n".join(f"{number} {name}" for name, number in called.most_common())
        assert called.total() <= MOST_CALLS, listed
