import asyncio
from collections import deque
from collections.abc import Iterator

import msgspec
import pytest

from proxy.errors import (
    UpstreamBroken,
    UpstreamBusy,
    UpstreamError,
    UpstreamRestarting,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.settings.units import Duration
from proxy.settings.upstreams import Queue
from proxy.settings.upstreams import Upstream as UpstreamConfig
from proxy.upstreams.base import Server, Upstream, UpstreamRequest, UpstreamResponse
from proxy.upstreams.body import Body
from proxy.upstreams.breaker import OPEN_S
from proxy.upstreams.budget import RetryBudget
from proxy.upstreams.fallback import Sender
from proxy.upstreams.pool import Pool

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
    """An upstream that answers by its script, the last line of it for ever. An event in the script
    is waited for before the next line."""

    def __init__(self, name: str, *script: object) -> None:
        self.name = name
        self.identity = name
        self.models: tuple[str, ...] = ()
        self.servers: tuple[Server, ...] = (self,)
        self.num_sent = 0
        self.num_cancelled = 0
        self.bodies: list[Body] = []
        self._script = deque(script)

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        self.num_sent += 1
        step = self._script.popleft() if len(self._script) > 1 else self._script[0]
        if isinstance(step, asyncio.Event):
            try:
                await step.wait()
            except asyncio.CancelledError:
                self.num_cancelled += 1
                raise
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

    async def start(self) -> None:
        pass

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


class Fleet(Scripted):
    """An upstream of several servers, each with its own script."""

    def __init__(self, name: str, *servers: Scripted) -> None:
        super().__init__(name, 500)
        self.servers = servers


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A route as a sender sees it."""

    upstreams: tuple[Upstream, ...]
    retries: int = 2
    hedge_after_s: float | None = None


class Harness:
    """A sender without time: pauses are noted, the clock stands where the test puts it."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.budget = RetryBudget()
        self.pools: dict[str, Pool] = {}
        self.counts: list[tuple[str, str]] = []
        self.now_s = 0.0
        self.sender = Sender(
            self.pools, budget=self.budget, count=lambda *one: self.counts.append(one),
            sleep=self.sleep, jitter=lambda: 1.0,
        )  # fmt: skip

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def pool(self, upstream: Upstream, **config: object) -> Pool:
        """The first call for an upstream makes it."""
        if upstream.name not in self.pools:
            urls = tuple(f"http://{n}" for n in range(len(upstream.servers)))
            written = UpstreamConfig(base_url=urls, **config)  # type: ignore[arg-type]  # of several types
            pool = Pool(upstream.name, upstream.servers, written, clock=lambda: self.now_s)
            self.pools[upstream.name] = pool
        return self.pools[upstream.name]

    async def send(
        self,
        *upstreams: Upstream,
        retries: int = 2,
        streamed: bool = False,
        hedge_after_s: float | None = None,
    ) -> UpstreamResponse:
        for upstream in upstreams:
            self.pool(upstream)
        request = msgspec.structs.replace(REQUEST, stream=streamed)
        plan = Plan(upstreams=upstreams, retries=retries, hedge_after_s=hedge_after_s)
        return await self.sender.send(plan, lambda _upstream: request)

    def trail(self) -> list[tuple[str, str]]:
        """Upstreams and results of all attempts since the last call."""
        trail, self.counts[:] = list(self.counts), []
        return trail

    def is_idle(self) -> bool:
        """No request holds a place or counts as being in flight."""
        pools = self.pools.values()
        places = [pool.admission.in_flight for pool in pools]
        return not any((*places, *(one.in_flight for pool in pools for one in pool.members)))


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    assert harness.is_idle()


async def read(response: UpstreamResponse) -> bytes:
    return b"".join([piece async for piece in response.body])


@pytest.mark.parametrize("status", [200, 301, 400, 401, 403, 404, 413, 422])
async def test_a_final_status_is_returned_at_once(harness: Harness, status: int) -> None:
    first, second = Scripted("a", status), Scripted("b", 200)
    response = await harness.send(first, second)
    assert (response.upstream, response.status) == ("a", status)
    assert (first.num_sent, second.num_sent) == (1, 0)


@pytest.mark.parametrize(
    ("step", "result"),
    [
        (408, "client_error"), (409, "client_error"), (429, "rate_limited"), (500, "server_error"),
        (503, "server_error"), (unreachable(), "unreachable"), (broken(), "broken"),
    ],
)  # fmt: skip
async def test_a_failure_leads_to_the_next_upstream_without_a_pause(
    harness: Harness, step: object, result: str
) -> None:
    response = await harness.send(Scripted("a", step), Scripted("b", 200))
    assert response.upstream == "b"
    assert harness.trail() == [("a", result), ("b", "answered")]
    assert harness.pauses == []


async def test_when_all_have_failed_the_walk_begins_again_after_growing_pauses(
    harness: Harness,
) -> None:
    first, second = Scripted("a", 500), Scripted("b", 503, unreachable(), 200)
    response = await harness.send(first, second, retries=2)
    assert response.status == 200
    assert harness.trail() == [
        ("a", "server_error"), ("b", "server_error"), ("a", "server_error"), ("b", "unreachable"),
        ("a", "server_error"), ("b", "answered"),
    ]  # fmt: skip
    assert harness.pauses == [0.25, 0.5]


async def test_the_last_response_is_returned_as_it_is_when_all_fail(harness: Harness) -> None:
    second = Scripted("b", 503, answer(503, x_request_id="7"))
    response = await harness.send(Scripted("a", unreachable()), second, retries=1)
    assert response.status == 503
    assert (b"x-request-id", b"7") in response.headers
    assert await read(response) == b"{}"


async def test_after_retries_in_vain_the_sdk_is_told_to_make_none(harness: Harness) -> None:
    told = (b"x-should-retry", b"false")
    assert told in (await harness.send(Scripted("a", 500), retries=1)).headers
    assert told not in (await harness.send(Scripted("b", 500), retries=0)).headers
    recovered = await harness.send(Scripted("c", 500, 200), retries=1)
    assert told not in recovered.headers
    later = await harness.send(Scripted("d", 500, answer(429, retry_after="60")), retries=1)
    assert told not in later.headers  # the SDK may wait as long as the upstream asks


async def test_the_last_error_is_raised_when_all_fail(harness: Harness) -> None:
    with pytest.raises(UpstreamUnreachable):
        await harness.send(Scripted("a", 500), Scripted("b", unreachable()))


@pytest.mark.parametrize("phase", ["first_byte", "total"])
async def test_a_long_wait_is_not_repeated(harness: Harness, phase: str) -> None:
    upstream = Scripted("a", UpstreamTimeout("slow", upstream="a", phase=phase))
    with pytest.raises(UpstreamTimeout):
        await harness.send(upstream)
    assert upstream.num_sent == 1


async def test_an_engine_that_was_waited_for_in_vain_gives_way_to_the_next_upstream(
    harness: Harness,
) -> None:
    late = UpstreamRestarting("late", upstream="a", before_first_byte=True, late=True)
    upstream = Scripted("a", late)
    assert (await harness.send(upstream, Scripted("b", 200))).upstream == "b"
    with pytest.raises(UpstreamRestarting):
        await harness.send(upstream)
    assert upstream.num_sent == 2, "once each"


async def test_a_wait_that_the_upstream_asks_for_is_kept(harness: Harness) -> None:
    upstream = Scripted("a", answer(429, retry_after="3"), answer(503, retry_after_ms="500"), 200)
    assert (await harness.send(upstream)).status == 200
    assert harness.pauses == [3.0, 0.5]


@pytest.mark.parametrize("wanted", ["11", "3600", "Wed, 21 Oct 2030 07:28:00 GMT"])
async def test_an_upstream_that_asks_for_a_long_wait_is_not_tried_again(
    harness: Harness, wanted: str
) -> None:
    upstream = Scripted("a", answer(429, retry_after=wanted))
    response = await harness.send(upstream)
    assert upstream.num_sent == 1
    assert (b"x-should-retry", b"false") not in response.headers
    assert (b"retry-after", wanted.encode()) in response.headers


async def test_an_upstream_that_forbids_another_try_is_obeyed(harness: Harness) -> None:
    upstream = Scripted("a", answer(500, x_should_retry="false"))
    await harness.send(upstream)
    assert upstream.num_sent == 1


async def test_retries_end_with_the_budget_and_come_back_with_requests(harness: Harness) -> None:
    failing = Scripted("a", 500)
    for _ in range(20):
        harness.now_s += 60.0  # too seldom for the breaker
        await harness.send(failing, retries=2)
    # 10 to begin with and 20 % of 20 requests.
    assert failing.num_sent == 20 + 10 + 4
    for _ in range(5):
        await harness.send(Scripted("b", 200))
    failing.num_sent = 0
    harness.now_s += 60.0
    await harness.send(failing, retries=2)
    assert failing.num_sent == 2


async def test_what_is_streamed_through_is_sent_once_and_not_waited_for(harness: Harness) -> None:
    failing = Scripted("a", 500)
    harness.pool(failing)
    response = await harness.sender.relay(failing, REQUEST)
    assert (response.status, await read(response)) == (500, b"{}")
    never = Scripted("b", stream(EVENT, asyncio.Event()))
    harness.pool(never)
    response = await harness.sender.relay(never, REQUEST)
    assert await anext(response.body) == EVENT
    await response.body.aclose()
    assert (failing.num_sent, never.num_sent) == (1, 1)


async def test_an_upstream_that_mostly_fails_is_left_alone(harness: Harness) -> None:
    failing = Scripted("a", 500)
    breaker = harness.pool(failing).members[0].breaker
    for _ in range(20):
        await harness.send(failing, retries=0)
    assert breaker.is_open

    response = await harness.send(failing, Scripted("b", 200))
    assert response.upstream == "b"
    with pytest.raises(UpstreamUnreachable, match="left alone"):
        await harness.send(failing)
    assert failing.num_sent == 20


async def test_a_busy_upstream_is_not_a_broken_one(harness: Harness) -> None:
    upstream = Scripted("a", 429)
    for _ in range(40):
        await harness.send(upstream, retries=0)
    assert not harness.pool(upstream).members[0].breaker.is_open


async def test_the_clients_own_mistakes_are_answers(harness: Harness) -> None:
    upstream = Scripted("a", 400)
    for _ in range(40):
        await harness.send(upstream, retries=0)
    assert not harness.pool(upstream).members[0].breaker.is_open


async def test_a_good_stream_comes_through_byte_for_byte(harness: Harness) -> None:
    pieces = (b": hi\n\n", b"data: {", b'"a":1}\n\n' + EVENT, EVENT)
    response = await harness.send(Scripted("a", stream(*pieces)), streamed=True)
    assert [piece async for piece in response.body] == list(pieces)


async def test_a_stream_that_begins_with_an_error_goes_to_the_next_upstream(
    harness: Harness,
) -> None:
    first = Scripted("a", stream(b'data: {"error":{"message":"busy","code":503}}\n\n'))
    response = await harness.send(first, Scripted("b", stream(EVENT)), streamed=True)
    assert await read(response) == EVENT
    assert harness.trail() == [("a", "server_error"), ("b", "answered")]
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
    response = await harness.send(Scripted("a", stream(event + b"\n\n")), streamed=True)
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
    response = await harness.send(upstream, streamed=True, retries=0)
    assert response.status == 502


@pytest.mark.parametrize("pieces", [(), (b": hi\n\n",), (b"data: {",), (broken(),)])
async def test_a_stream_that_ends_before_its_first_event_is_a_failure(
    harness: Harness, pieces: tuple[bytes | Exception, ...]
) -> None:
    first = Scripted("a", stream(*pieces))
    response = await harness.send(first, Scripted("b", stream(EVENT)), streamed=True)
    assert await read(response) == EVENT
    assert harness.trail() == [("a", "broken"), ("b", "answered")]


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


async def test_a_plain_answer_that_breaks_in_its_middle_goes_to_the_next_upstream(
    harness: Harness,
) -> None:
    cut = UpstreamResponse(upstream="", status=200, headers=(), body=Pieces(b"{half", broken()))
    response = await harness.send(Scripted("a", cut), Scripted("b", 200))
    assert await read(response) == b"{}"
    assert harness.trail() == [("a", "broken"), ("b", "answered")]


async def test_a_place_is_held_until_the_stream_has_ended(harness: Harness) -> None:
    upstream = Scripted("a", stream(EVENT, EVENT))
    response = await harness.send(upstream, streamed=True)
    assert harness.pool(upstream).admission.in_flight == 1
    await read(response)
    assert harness.is_idle()


async def test_a_place_is_given_back_when_a_stream_is_closed_early(harness: Harness) -> None:
    response = await harness.send(Scripted("a", stream(EVENT, asyncio.Event())), streamed=True)
    await response.body.aclose()
    await response.body.aclose()
    assert harness.is_idle()


async def test_a_full_upstream_with_a_full_queue_is_busy_and_the_next_one_is_asked(
    harness: Harness,
) -> None:
    full = Scripted("a", stream(EVENT, asyncio.Event()))
    harness.pool(full, max_in_flight=1, queue=Queue(length=0))
    running = await harness.send(full, streamed=True)
    response = await harness.send(full, Scripted("b", 200))
    assert response.upstream == "b"
    with pytest.raises(UpstreamBusy):
        await harness.send(full)
    assert harness.trail()[1:3] == [("a", "busy"), ("b", "answered")]
    await running.body.aclose()


async def test_an_answer_is_not_replaced_by_the_news_that_another_upstream_is_busy(
    harness: Harness,
) -> None:
    full = Scripted("b", stream(EVENT, asyncio.Event()))
    harness.pool(full, max_in_flight=1, queue=Queue(length=0))
    running = await harness.send(full, streamed=True)
    response = await harness.send(Scripted("a", answer(429, retry_after="60")), full, retries=0)
    assert (response.status, await read(response)) == (429, b"{}")
    await running.body.aclose()


async def test_who_waits_too_long_in_the_queue_is_told_that_it_is_busy(harness: Harness) -> None:
    full = Scripted("a", stream(EVENT, asyncio.Event()))
    harness.pool(full, max_in_flight=1, queue=Queue(length=1, timeout=Duration(0.01)))
    running = await harness.send(full, streamed=True)
    with pytest.raises(UpstreamBusy, match=r"within 0\.01 s"):
        await harness.send(full, retries=0)
    await running.body.aclose()


async def test_a_server_that_cannot_be_reached_leads_to_the_next_one_at_no_cost(
    harness: Harness,
) -> None:
    fleet = Fleet("f", Scripted("one", unreachable()), Scripted("two", 200))
    while harness.budget.spend():
        pass
    for _ in range(2):
        assert (await harness.send(fleet, retries=0)).status == 200
    assert harness.pauses == []


async def test_a_server_that_fails_leads_to_another_as_a_retry_without_a_pause(
    harness: Harness,
) -> None:
    one, two = Scripted("one", 503), Scripted("two", 200)
    assert (await harness.send(Fleet("f", one, two), retries=1)).status == 200
    assert (one.num_sent, two.num_sent, harness.pauses) == (1, 1, [])


async def test_a_server_that_fails_is_the_answer_where_there_are_no_retries(
    harness: Harness,
) -> None:
    one, two = Scripted("one", 503), Scripted("two", 200)
    assert (await harness.send(Fleet("f", one, two), retries=0)).status == 503
    assert two.num_sent == 0


async def test_other_servers_are_not_asked_after_a_refusal_to_retry(harness: Harness) -> None:
    one, two = Scripted("one", answer(503, x_should_retry="false")), Scripted("two", 200)
    assert (await harness.send(Fleet("f", one, two))).status == 503
    assert two.num_sent == 0


async def test_a_server_that_is_never_reached_is_ejected_alone_and_probed_again(
    harness: Harness,
) -> None:
    dead, good = Scripted("dead", *[unreachable()] * 3, 200), Scripted("good", 200)
    fleet = Fleet("f", dead, good)
    for _ in range(20):
        assert (await harness.send(fleet)).status == 200
    assert (dead.num_sent, good.num_sent) == (3, 20)
    assert [state.left_alone for state in harness.sender.states()] == [True, False]

    harness.now_s = OPEN_S
    for _ in range(10):
        await harness.send(fleet)
    assert [state.left_alone for state in harness.sender.states()] == [False, False]
    assert dead.num_sent == 3 + 5


async def test_a_slow_first_event_is_asked_for_again_and_the_loser_is_cancelled(
    harness: Harness,
) -> None:
    slow = Scripted("a", asyncio.Event(), 500)
    fast = Scripted("b", stream(EVENT))
    response = await harness.send(slow, fast, streamed=True, hedge_after_s=0.001)
    assert (response.upstream, await read(response)) == ("b", EVENT)
    assert slow.num_cancelled == 1
    assert harness.trail() == [("b", "answered"), ("a", "cancelled")]


async def test_another_server_of_the_same_upstream_is_the_first_choice_for_a_hedge(
    harness: Harness,
) -> None:
    fleet = Fleet("f", Scripted("one", asyncio.Event(), 500), Scripted("two", stream(EVENT)))
    rest = Scripted("b", stream(EVENT))
    response = await harness.send(fleet, rest, streamed=True, hedge_after_s=0.001)
    assert await read(response) == EVENT
    assert rest.num_sent == 0


async def test_a_slow_answer_is_taken_when_the_hedge_fails(harness: Harness) -> None:
    late = asyncio.Event()
    slow, failing = Scripted("a", late, stream(EVENT)), Scripted("b", 500)
    sending = asyncio.create_task(
        harness.send(slow, failing, streamed=True, hedge_after_s=0.001, retries=0)
    )
    while not harness.counts:
        await asyncio.sleep(0)
    late.set()
    response = await sending
    assert (response.upstream, await read(response)) == ("a", EVENT)


async def test_a_hedge_needs_the_budget_and_a_stream(harness: Harness) -> None:
    late = asyncio.Event()
    slow, other = Scripted("a", late, stream(EVENT)), Scripted("b", stream(EVENT))
    while harness.budget.spend():
        pass
    sending = asyncio.create_task(harness.send(slow, other, streamed=True, hedge_after_s=0.001))
    plain = asyncio.create_task(harness.send(Scripted("c", late, 200), other, hedge_after_s=0.001))
    await asyncio.sleep(0.02)
    late.set()
    assert await read(await sending) == EVENT
    assert (await plain).upstream == "c"
    assert other.num_sent == 0


async def test_cancelling_a_hedged_request_cancels_both(harness: Harness) -> None:
    slow, other = Scripted("a", asyncio.Event(), 500), Scripted("b", asyncio.Event(), 500)
    sending = asyncio.create_task(harness.send(slow, other, streamed=True, hedge_after_s=0.001))
    while not other.num_sent:
        await asyncio.sleep(0.001)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert (slow.num_cancelled, other.num_cancelled) == (1, 1)
