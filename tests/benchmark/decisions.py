"""What a request costs before anything is looked up: decode, directives, eligibility, fingerprint.

    python -P tests/benchmark/decisions.py      (-P: `proxy` is the package, not the file beside)

Bodies are compact JSON, as SDKs send them, and spaced JSON, as `json.dumps` writes it. The best of
several rounds, since everything here is pure.
"""

import json
import platform
import timeit
from collections.abc import Callable

import msgspec

from proxy.call import Call, Caller, Surface
from proxy.request import directives, wire
from proxy.request.eligibility import judge
from proxy.request.fingerprint import fingerprint
from proxy.settings.config import Policy
from proxy.settings.semantic import Semantic

HEADERS = tuple(
    (name.encode(), value.encode())
    for name, value in {
        "host": "127.0.0.1:8080",
        "accept": "application/json",
        "accept-encoding": "gzip, deflate",
        "connection": "keep-alive",
        "content-type": "application/json",
        "content-length": "500",
        "user-agent": "OpenAI/Python 2.1.0",
        "authorization": "Bearer sk-0123456789",
        "x-stainless-lang": "python",
        "x-stainless-package-version": "2.1.0",
        "x-stainless-os": "Linux",
        "x-stainless-arch": "x64",
        "x-stainless-runtime": "CPython",
        "x-stainless-runtime-version": "3.11.7",
        "x-stainless-async": "false",
        "x-stainless-retry-count": "0",
        "x-stainless-read-timeout": "600",
    }.items()
)
EXACT = Policy()
SEMANTIC = Policy(
    semantic=Semantic(), normalize=("trim", "line_endings", "unicode", "collapse_spaces")
)


def chat(num_turns: int, text: str) -> dict[str, object]:
    messages = [{"role": "system", "content": "You are a helpful assistant. " * 4}]
    for turn in range(num_turns):
        messages.append({"role": ("user", "assistant")[turn % 2], "content": text})
    return {"model": "gpt-4o-mini", "messages": messages, "temperature": 0.7, "stream": True}


def received(body: bytes) -> Call:
    decoded = wire.decode(Surface.CHAT, body)
    return Call(
        request_id="r",
        caller=Caller(tenant="acme", credential_id="0" * 64),
        surface=Surface.CHAT,
        path="/chat/completions",
        query=b"",
        headers=HEADERS,
        credential=None,
        body=decoded.body,
        fields=decoded.fields,
        model=decoded.view.model,
        stream=decoded.stream,
        include_usage=decoded.include_usage,
        directives=directives.parse(HEADERS, decoded.cache),
        received_at=0.0,
    )


def decided(call: Call, policy: Policy) -> str:
    eligibility = judge(call, policy, volatile=lambda text: None)
    found = fingerprint(
        call,
        secret=b"0" * 32,
        upstream="openai",
        model="gpt-4o-mini",
        policy_name="standard",
        policy=policy,
        semantic=eligibility.semantic,
    )
    return found.key


def best_us(step: Callable[[], object], *, rounds: int = 9) -> float:
    timer = timeit.Timer(step)
    number, _ = timer.autorange()
    return min(timer.repeat(repeat=rounds, number=max(number // 5, 1))) / max(number // 5, 1) * 1e6


def main() -> None:
    print(
        f"{platform.machine()}, Python {platform.python_version()}, msgspec {msgspec.__version__}"
    )
    print(f"{'body':<24}{'bytes':>9}{'receive':>10}{'exact':>10}{'semantic':>10}   us a request")
    small = chat(1, "How do I reset my password, please? " * 8)
    large = chat(55, "How do I reset my password, please?\n" * 50)
    for name, request in (("one question", small), ("long conversation", large)):
        for style, separators in (("compact", (",", ":")), ("spaced", (", ", ": "))):
            body = json.dumps(request, separators=separators).encode()
            call = received(body)
            costs = (
                best_us(lambda body=body: received(body)),
                best_us(lambda call=call: decided(call, EXACT)),
                best_us(lambda call=call: decided(call, SEMANTIC)),
            )
            row = "".join(f"{cost:>10.1f}" for cost in costs)
            print(f"{name + ', ' + style:<24}{len(body):>9}{row}")


if __name__ == "__main__":
    main()
