"""A load generator that is cheap enough not to be what is measured: raw HTTP/1.1 over asyncio.

    python tests/benchmark/load.py PORT --requests 2000 --in-flight 16 --kind hit|miss [--stream]

`hit` sends one body over and over; `miss` makes each body unique. Prints one line of JSON:
requests per second, p50 and p99 of the whole answer and of its first byte, in milliseconds, and how
many answers were not a 200. `--path` and `--model` fit other servers. `--traced`: each request has
the `traceparent` of a trace of its own.
"""

import argparse
import asyncio
import json
import secrets
import time

import uvloop


class Connection:
    """One keep-alive connection; one request at a time."""

    def __init__(self, port: int, path: str, *, traced: bool) -> None:
        self._port = port
        self._path = path
        self._traced = traced

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=2**24
        )

    async def ask(self, body: bytes) -> tuple[bool, float, float]:
        """Send one request. Returns (was it a 200, seconds to the first byte, to the last)."""
        trace = ""
        if self._traced:
            trace = f"traceparent: 00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01\r\n"
        head = (
            f"POST {self._path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer sk-benchmark\r\ncontent-length: {len(body)}\r\n{trace}\r\n"
        ).encode()
        started = time.perf_counter()
        self._writer.write(head + body)
        headers = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        first = None
        if b"transfer-encoding: chunked" in headers:
            while True:
                size = int(await self._reader.readuntil(b"\r\n"), 16)
                await self._reader.readexactly(size + 2)
                first = first or time.perf_counter() - started
                if size == 0:
                    break
        else:
            length = int(headers.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
            await self._reader.readexactly(length)
        total = time.perf_counter() - started
        return b" 200 " in headers.split(b"\r\n", 1)[0], first or total, total

    def close(self) -> None:
        self._writer.close()


async def run(arguments: argparse.Namespace) -> dict[str, float]:
    numbers = iter(range(arguments.requests))
    results: list[tuple[bool, float, float]] = []
    padding = arguments.body_bytes // len(" more")
    base = {
        "model": arguments.model,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant. " * 8},
            {"role": "user", "content": "What is the capital of France?" + " more" * padding},
        ],
        "temperature": 0.2,
    }
    if arguments.stream:
        base["stream"] = True

    async def client() -> None:
        connection = Connection(arguments.port, arguments.path, traced=arguments.traced)
        await connection.open()
        for number in numbers:
            request = dict(base)
            if arguments.kind == "miss":
                request["seed"] = arguments.first_seed + number
            results.append(await connection.ask(json.dumps(request).encode()))
        connection.close()

    started = time.perf_counter()
    await asyncio.gather(*[client() for _ in range(arguments.in_flight)])
    elapsed = time.perf_counter() - started
    first = sorted(result[1] * 1000 for result in results)
    total = sorted(result[2] * 1000 for result in results)
    return {
        "requests_per_s": len(results) / elapsed,
        "p50_ms": total[len(total) // 2],
        "p99_ms": total[len(total) * 99 // 100],
        "first_p50_ms": first[len(first) // 2],
        "first_p99_ms": first[len(first) * 99 // 100],
        "failed": sum(not result[0] for result in results),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--kind", choices=("hit", "miss"), default="hit")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--traced", action="store_true")
    parser.add_argument("--path", default="/v1/chat/completions")
    parser.add_argument("--model", default="mock")
    parser.add_argument("--body-bytes", type=int, default=0, help="more text in each question")
    parser.add_argument("--first-seed", type=int, default=0)
    print(json.dumps(uvloop.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
