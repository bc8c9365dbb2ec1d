"""The floor: a bare ASGI application on the proxy's own server that only reads and answers.

    python tests/benchmark/bare_asgi.py PORT

What it costs is what any proxy on this server must cost; the rest is ours.
"""

import sys

import uvicorn
from mock_upstream import DONE, LAST, PIECES, PLAIN

STREAM = b"".join(PIECES) + LAST + DONE


async def application(scope, receive, send) -> None:
    message = await receive()
    body = PLAIN if b'"stream"' not in message["body"] else STREAM
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    uvicorn.run(
        application,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
