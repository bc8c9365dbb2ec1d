import asyncio
from collections import deque
from collections.abc import Callable

import msgspec
import pytest

from proxy.errors import UpstreamBroken, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from proxy.upstreams.base import Upstream, UpstreamRequest, UpstreamResponse
from proxy.upstreams.body import Body
from proxy.upstreams.breaker import Breaker
from proxy.upstreams.fallback import Answered, RetryBudget, Sender, send_first

REQUEST = UpstreamRequest(
    request_id="r", method="POST", path="/chat/completions", query=b"", headers=(),
    credential=None, body=b"{}", stream=False,
)  # fmt: skip
EVENT = b'data: {"choices":[]}\n\n'


class Pieces(Body):
    """A body out of pieces; an exception among them is raised, an event is waited for."""

    def __init__(self, *pieces: bytes | Exception | asyncio.Event) -> None:
        self.left = deque(pieces)
        self.closed = False

    async def __anext__(self) -> bytes:
        if not self.left:
            raise StopAsyncIteration
        piece = self.left.popleft()
        if isinstance(piece, Exception):
            raise piece
        if isinstance(piece, asyncio.Event):
            await piece.wait()
            return await self.__anext__()
        return piece

    async def aclose(self) -> None:
        self.closed = True


class Scripted:
    """An upstream that answers by its script, the last line of it for ever."""

    def __init__(self, name: str, *script: object) -> None:
        self.name = name
        self.identity = name
        self.models: tuple[str, ...] = ()
        self.num_sent = 0
        self.bodies: list[Body] = []
        self._script = deque(script)

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        self.num_sent += 1
        step = self._script.popleft() if len(self._script) > 1 else self._script[0]
        if isinstance(step, UpstreamError):
            raise step
        if isinstance(step, UpstreamResponse):
            step = msgspec.structs.replace(step, upstream=self.name)
            assert isinstance(step.body, Body)
            self.bodies.append(step.body)
            return step
        assert isinstance(step, int)
        return answer(step, upstream=self.name)

    async def state(self) -> str:
        return "ready"

    async def close(self) -> None:
        pass


def answer(status: int, *, upstream: str = "", **headers: str) -> UpstreamResponse:
    pairs = tuple((k.replace("_", "-").encode(), v.encode()) for k, v in headers.items())
    return UpstreamResponse(upstream=upstream, status=status, headers=pairs, body=Pieces(b"{}"))


def stream(*pieces: bytes | Exception | asyncio.Event) -> UpstreamResponse:
    kind = (b"content-type", b"text/event-stream")
    return UpstreamResponse(upstream="", status=200, headers=(kind,), body=Pieces(*pieces))


def unreachable() -> UpstreamError:
    return UpstreamUnreachable("down", upstream="x")


def broken() -> UpstreamError:
    return UpstreamBroken("cut", upstream="x", before_first_byte=True)


class Harness:
    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.budget = RetryBudget()
        self.breakers: dict[str, Breaker] = {}

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def send(
        self, *upstreams: Upstream, retries: int = 2, streamed: bool = False
    ) -> Answered:
        request = msgspec.structs.replace(REQUEST, stream=streamed)
        return await send_first(
            upstreams, lambda _upstream: request, retries=retries, budget=self.budget,
            breakers=self.breakers, sleep=self.sleep, jitter=lambda: 1.0,
        )  # fmt: skip


@pytest.fixture
def harness() -> Harness:
    return Harness()


def trail(answered: Answered) -> list[tuple[str, int | None]]:
    return [(attempt.upstream, attempt.status) for attempt in answered.attempts]


@pytest.mark.parametrize("status", [200, 301, 400, 401, 403, 404, 413, 422])
async def test_a_final_status_is_returned_at_once(harness: Harness, status: int) -> None:
    first, second = Scripted("a", status), Scripted("b", 200)
    answered = await harness.send(first, second)
    assert trail(answered) == [("a", status)]
    assert second.num_sent == 0


@pytest.mark.parametrize("step", [408, 409, 429, 500, 503, unreachable(), broken()])
async def test_a_failure_leads_to_the_next_upstream_without_a_pause(
    harness: Harness, step: object
) -> None:
    answered = await harness.send(Scripted("a", step), Scripted("b", 200))
    assert answered.response.upstream == "b"
    assert trail(answered) == [("a", step if isinstance(step, int) else None), ("b", 200)]
    assert harness.pauses == []


async def test_when_all_have_failed_the_walk_begins_again_after_growing_pauses(
    harness: Harness,
) -> None:
    first, second = Scripted("a", 500), Scripted("b", 503, unreachable(), 200)
    answered = await harness.send(first, second, retries=2)
    assert trail(answered) == [
        ("a", 500), ("b", 503), ("a", 500), ("b", None), ("a", 500), ("b", 200)
    ]  # fmt: skip
    assert harness.pauses == [0.25, 0.5]


async def test_the_last_response_is_returned_as_it_is_when_all_fail(harness: Harness) -> None:
    second = Scripted("b", 503, answer(503, x_request_id="7"))
    answered = await harness.send(Scripted("a", unreachable()), second, retries=1)
    assert answered.response.status == 503
    assert (b"x-request-id", b"7") in answered.response.headers
    assert isinstance(answered.response.body, Pieces)
    assert not answered.response.body.closed


async def test_the_last_error_is_raised_when_all_fail(harness: Harness) -> None:
    with pytest.raises(UpstreamUnreachable):
        await harness.send(Scripted("a", 500), Scripted("b", unreachable()))


async def test_responses_that_are_given_up_are_closed(harness: Harness) -> None:
    first = Scripted("a", answer(500))
    await harness.send(first, Scripted("b", 200))
    assert isinstance(first.bodies[0], Pieces)
    assert first.bodies[0].closed


@pytest.mark.parametrize("phase", ["first_byte", "total"])
async def test_a_long_wait_is_not_repeated(harness: Harness, phase: str) -> None:
    upstream = Scripted("a", UpstreamTimeout("slow", upstream="a", phase=phase))
    with pytest.raises(UpstreamTimeout):
        await harness.send(upstream)
    assert upstream.num_sent == 1


async def test_a_wait_that_the_upstream_asks_for_is_kept(harness: Harness) -> None:
    upstream = Scripted("a", answer(429, retry_after="3"), answer(503, retry_after_ms="500"), 200)
    assert (await harness.send(upstream)).response.status == 200
    assert harness.pauses == [3.0, 0.5]


@pytest.mark.parametrize("wanted", ["11", "3600", "Wed, 21 Oct 2030 07:28:00 GMT"])
async def test_an_upstream_that_asks_for_a_long_wait_is_not_tried_again(
    harness: Harness, wanted: str
) -> None:
    upstream = Scripted("a", answer(429, retry_after=wanted))
    answered = await harness.send(upstream)
    assert upstream.num_sent == 1
    assert (b"retry-after", wanted.encode()) in answered.response.headers


async def test_an_upstream_that_forbids_another_try_is_obeyed(harness: Harness) -> None:
    upstream = Scripted("a", answer(500, x_should_retry="false"))
    await harness.send(upstream)
    assert upstream.num_sent == 1


async def test_retries_end_with_the_budget_and_come_back_with_requests(harness: Harness) -> None:
    failing = Scripted("a", 500)
    for _ in range(20):
        await harness.send(failing, retries=2)
    # 10 to begin with and 20 % of 20 requests.
    assert failing.num_sent == 20 + 10 + 4
    for _ in range(5):
        await harness.send(Scripted("b", 200))
    failing.num_sent = 0
    await harness.send(failing, retries=2)
    assert failing.num_sent == 2


async def test_a_body_that_can_be_sent_only_once_is_not_sent_twice(harness: Harness) -> None:
    async def pieces():  # type: ignore[no-untyped-def]
        yield b"x"

    request = msgspec.structs.replace(REQUEST, body=pieces())
    failing = Scripted("a", unreachable())
    with pytest.raises(UpstreamUnreachable):
        await send_first(
            [failing, Scripted("b", 200)], lambda _upstream: request, retries=2,
            budget=harness.budget, breakers={}, sleep=harness.sleep, jitter=lambda: 0.0,
        )  # fmt: skip
    assert failing.num_sent == 1


def breaker_of(harness: Harness, name: str, now: Callable[[], float] = lambda: 0.0) -> Breaker:
    return harness.breakers.setdefault(name, Breaker(clock=now))


async def test_an_upstream_that_mostly_fails_is_left_alone(harness: Harness) -> None:
    breaker = breaker_of(harness, "a")
    failing = Scripted("a", 500)
    for _ in range(20):
        await harness.send(failing, retries=0)
    assert breaker.is_open

    answered = await harness.send(failing, Scripted("b", 200))
    assert trail(answered) == [("a", None), ("b", 200)]
    with pytest.raises(UpstreamUnreachable, match="left alone"):
        await harness.send(failing)
    assert failing.num_sent == 20


async def test_a_busy_upstream_is_not_a_broken_one(harness: Harness) -> None:
    breaker = breaker_of(harness, "a")
    for _ in range(40):
        await harness.send(Scripted("a", 429), retries=0)
    assert not breaker.is_open


async def test_the_clients_own_mistakes_are_answers(harness: Harness) -> None:
    breaker = breaker_of(harness, "a")
    for _ in range(40):
        await harness.send(Scripted("a", 400), retries=0)
    assert not breaker.is_open


async def test_a_good_stream_comes_through_byte_for_byte(harness: Harness) -> None:
    pieces = (b": hi\n\n", b"data: {", b'"a":1}\n\n' + EVENT, EVENT)
    answered = await harness.send(Scripted("a", stream(*pieces)), streamed=True)
    assert [piece async for piece in answered.response.body] == list(pieces)


async def test_a_stream_that_begins_with_an_error_goes_to_the_next_upstream(
    harness: Harness,
) -> None:
    first = Scripted("a", stream(b'data: {"error":{"message":"busy","code":503}}\n\n'))
    answered = await harness.send(first, Scripted("b", stream(EVENT)), streamed=True)
    assert trail(answered) == [("a", 503), ("b", 200)]
    assert isinstance(first.bodies[0], Pieces)
    assert first.bodies[0].closed


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (b'data: {"error":{"message":"m","code":400}}', 400),
        (b'data: {"error":{"message":"m","code":"401"}}', 401),
        (b'data: {"error":{"message":"m","type":"invalid_request_error"}}', 400),
        (b'data: {"object":"error","message":"m","code":404}', 404),
        (b'event: error\ndata: {"type":"error","message":"m","status":422}', 422),
    ],
)
async def test_an_error_as_the_first_event_becomes_a_real_status(
    harness: Harness, event: bytes, status: int
) -> None:
    answered = await harness.send(Scripted("a", stream(event + b"\n\n")), streamed=True)
    response = answered.response
    assert (response.status, response.content_type) == (status, b"application/json")
    body = msgspec.json.decode(b"".join([piece async for piece in response.body]))
    assert body["error"]["message"] == "m"
    assert set(body["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "event", [b'data: {"error":"boom"}', b'data: {"error":{"code":"x","type":"y"}}']
)
async def test_an_error_without_a_status_is_the_upstreams_failure(
    harness: Harness, event: bytes
) -> None:
    upstream = Scripted("a", stream(event + b"\n\n"), stream(event + b"\n\n"))
    answered = await harness.send(upstream, streamed=True, retries=0)
    assert answered.response.status == 502


@pytest.mark.parametrize("pieces", [(), (b": hi\n\n",), (b"data: {",), (broken(),)])
async def test_a_stream_that_ends_before_its_first_event_is_a_failure(
    harness: Harness, pieces: tuple[bytes | Exception, ...]
) -> None:
    first = Scripted("a", stream(*pieces))
    answered = await harness.send(first, Scripted("b", stream(EVENT)), streamed=True)
    assert trail(answered) == [("a", None), ("b", 200)]


async def test_cancelling_while_the_first_event_is_awaited_closes_the_body(
    harness: Harness,
) -> None:
    upstream = Scripted("a", stream(asyncio.Event()))
    task = asyncio.create_task(harness.send(upstream, streamed=True))
    while not upstream.bodies:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(upstream.bodies[0], Pieces)
    assert upstream.bodies[0].closed


async def test_a_sender_keeps_breakers_and_budget_over_requests() -> None:
    class Plan(msgspec.Struct):
        upstreams: tuple[Upstream, ...]
        retries: int = 0

    async def no_sleep(_seconds: float) -> None:
        return

    sender = Sender(clock=lambda: 0.0, sleep=no_sleep, jitter=lambda: 0.0)
    plan = Plan(upstreams=(Scripted("a", 500), Scripted("b", 200)))
    for _ in range(20):
        response = await sender.send(plan, lambda _upstream: REQUEST)
        assert response.upstream == "b"
    assert sender.open_breakers() == ("a",)
