"""`instructor`: typed answers in its modes, whole, in parts and in lists."""

import instructor
import openai
import pytest
from chats import ROBOT
from instructor.core.exceptions import InstructorRetryException
from pydantic import BaseModel, field_validator
from upstream import error


class Robot(BaseModel):
    """A robot."""

    name: str
    age: int


class Young(Robot):
    """A robot that nobody makes."""

    @field_validator("age")
    @classmethod
    def check(cls, age: int) -> int:
        if age > 30:
            raise ValueError("too old")
        return age


MODES = [instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA]


@pytest.mark.parametrize("mode", MODES)
def test_objects_are_made_of_live_and_replayed_answers(client, seen, question, mode):
    typed = instructor.from_openai(client, mode=mode)
    answers = [
        typed.chat.completions.create_with_completion(
            model="org/structured",
            response_model=Robot,
            messages=[{"role": "user", "content": question}],
        )
        for _ in range(2)
    ]
    assert [robot.model_dump() for robot, _ in answers] == [ROBOT, ROBOT]
    assert answers[0][1].to_dict() == answers[1][1].to_dict()
    assert seen.words == ["miss", "exact"]


@pytest.mark.parametrize("mode", MODES)
def test_partial_objects_grow_alike(client, seen, question, mode):
    typed = instructor.from_openai(client, mode=mode)
    runs = [
        [
            part.model_dump()
            for part in typed.chat.completions.create_partial(
                model="org/structured",
                response_model=Robot,
                messages=[{"role": "user", "content": question}],
            )
        ]
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert runs[0][-1] == ROBOT
    assert seen.words == ["miss", "exact"]


async def test_async_clients_share_the_entry(async_client, seen, question):
    typed = instructor.from_openai(async_client)
    for _ in range(2):
        robot = await typed.chat.completions.create(
            model="org/structured",
            response_model=Robot,
            messages=[{"role": "user", "content": question}],
        )
        assert robot.model_dump() == ROBOT
    assert seen.words == ["miss", "exact"]


def test_asking_again_after_a_wrong_answer_is_another_request(client, upstream, seen, question):
    typed = instructor.from_openai(client)
    for _ in range(2):
        with pytest.raises(InstructorRetryException):
            typed.chat.completions.create(
                model="org/structured",
                response_model=Young,
                max_retries=2,
                messages=[{"role": "user", "content": question}],
            )
    assert seen.words == ["miss"] * 3 + ["exact"] * 3
    assert len(upstream.asks(question)) == 3


def test_errors_of_the_upstream_come_through(client, upstream, question):
    upstream.fail(question, error(403, "Not for you."))
    typed = instructor.from_openai(client)
    with pytest.raises((openai.PermissionDeniedError, InstructorRetryException)) as caught:
        typed.chat.completions.create(
            model="org/structured",
            response_model=Robot,
            max_retries=0,
            messages=[{"role": "user", "content": question}],
        )
    assert "Not for you." in str(caught.value)
