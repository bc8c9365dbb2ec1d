"""The channel between the parent and a worker (`proxy.processes.control`), over real sockets."""

import asyncio
import contextlib
import socket

import pytest

from proxy.processes.control import (
    Adopt,
    Adopted,
    Done,
    Failed,
    Gone,
    Said,
    Silent,
    Unanswered,
    ask_each,
    open_channel,
)

DEADLINE_S = 60
ADOPT = Adopt(text="", engines={})


@contextlib.asynccontextmanager
async def channel_to(reply):
    """Our end of a channel whose other end answers by `reply`, and that other end."""

    async def nothing(_question):
        raise AssertionError("nobody asks here")

    ours, theirs = socket.socketpair()
    channel = await open_channel(ours.detach(), reply=nothing, name="a worker")
    other = await open_channel(theirs.detach(), reply=reply, name="the parent")
    running = [asyncio.create_task(one.run()) for one in (channel, other)]
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield channel, other
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def adopts(_question):
    return Adopted(ignored=())


async def fails(_question):
    raise OSError(28, "No space left on device")


async def never(_question):
    await asyncio.Event().wait()


async def test_who_asks_what_cannot_be_answered_is_told_why(caplog):
    async with channel_to(fails) as (channel, _):
        with pytest.raises(Unanswered, match="No space left on device"):
            await channel.ask(ADOPT)
        with pytest.raises(Unanswered):  # and the channel goes on
            await channel.ask(ADOPT)
    assert "Adopt cannot be answered" in caplog.text


async def test_a_question_of_any_length_arrives():
    lengths = []

    async def measure(question):
        lengths.append(len(question.line))
        return Done()

    async with channel_to(measure) as (channel, _):
        await channel.ask(Said(line="x" * (65 * 2**20)))
        await channel.ask(Said(line=""))
    assert lengths == [65 * 2**20, 0]


async def test_a_message_that_cannot_be_read_ends_the_channel_and_who_waits_is_told(caplog):
    async with channel_to(never) as (channel, other):
        asking = asyncio.create_task(channel.ask(ADOPT))
        other._writer.write(b"\0" * 7 + b"\x02" + b"{]")
        with pytest.raises(Gone):
            await asking
        with pytest.raises(Gone):
            await channel.ask(ADOPT)
    assert "another language" in caplog.text


async def test_of_several_those_that_fail_are_told_and_those_that_end_are_left_out():
    async with (
        channel_to(adopts) as (good, _),
        channel_to(fails) as (bad, _),
        channel_to(never) as (dead, end_of_dead),
    ):
        asking = asyncio.create_task(ask_each([good, bad, dead], ADOPT, within_s=DEADLINE_S))
        await asyncio.sleep(0)
        end_of_dead._writer.close()
        answers = await asking
    assert answers == [
        Adopted(ignored=()),
        Failed(problem="a worker: OSError: [Errno 28] No space left on device"),
    ]


async def test_who_does_not_answer_in_time_is_not_waited_for():
    async with channel_to(never) as (late, _):
        answers = await ask_each([late], ADOPT, within_s=0.01)
    assert answers == [Silent(problem="a worker does not answer within 0.01 s")]
