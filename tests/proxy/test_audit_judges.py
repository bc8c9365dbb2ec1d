"""Judges of two answers, and what answers say."""

import json

import pytest

from index.errors import EmbedderFault
from index.semantic import NoSemantic
from proxy.answer.payload import Payload
from proxy.auditing.embedding_judge import EmbeddingJudge, contradicts, sentences
from proxy.auditing.judges import EqualJudge
from proxy.auditing.text import text_in, text_of
from proxy.call import Surface, Usage


class Near(NoSemantic):
    """All texts are this similar."""

    def __init__(self, similarity):
        self._similarity = similarity
        self.seen = []

    async def similarities(self, ones, others):
        self.seen.append((ones, others))
        if isinstance(self._similarity, Exception):
            raise self._similarity
        return [[self._similarity] * len(others) for _ in ones]


class Diagonal(NoSemantic):
    """Only equal texts are near."""

    async def similarities(self, ones, others):
        return [[float(one == other) for other in others] for one in ones]


async def near(similarity, one, other):
    return await EmbeddingJudge(lambda: Near(similarity)).agree(None, one, other)


@pytest.mark.parametrize(
    "other", ["the  capital is\nlima", "The capital is Lima", "THE CAPITAL IS LIMA."]
)
async def test_spelling_does_not_make_another_answer(other):
    assert await EqualJudge().agree(None, "The capital is Lima.", other)
    assert await near(0.0, "The capital is Lima.", other), "without asking the embedder"


async def test_another_word_makes_another_answer_to_the_strict_judge():
    assert not await EqualJudge().agree(None, "The capital is Lima.", "The capital is Quito.")


async def test_near_answers_agree_unless_numbers_or_negations_differ():
    assert await near(0.95, "It opens at nine.", "The doors open at nine.")
    assert not await near(0.95, "It costs 20 euros.", "It costs 30 euros.")
    assert not await near(0.95, "It is safe to eat.", "It is not safe to eat.")
    assert not await near(0.3, "It opens at nine.", "Bananas are yellow.")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The capital of Australia is Canberra.", "The capital of Australia is Sydney."),
        ("Use platform A.", "Use platform B."),
        ("Lyon is larger than Nice.", "Nice is larger than Lyon."),
        ("Yes, dogs can eat it.", "Yes, cats can eat it."),
        ("Your basic plan goes on.", "Your premium plan goes on."),
        ("Invest in bonds.", "Do not invest in bonds."),
    ],
)
def test_a_word_in_the_place_of_another_makes_another_fact(one, other):
    assert contradicts(one, other)
    assert contradicts(other, one)


async def test_a_fact_that_differs_behind_a_long_beginning_is_found():
    beginning = "Oak is hard. Pine is soft. Both burn. " * 20
    one, other = f"{beginning}It costs 20 euros.", f"{beginning}It costs 30 euros."
    assert not await near(0.95, one, other)


async def test_an_answer_that_says_more_agrees_and_one_that_says_other_things_does_not():
    semantic = Diagonal()
    judge = EmbeddingJudge(lambda: semantic)
    said = "It opens at nine."
    assert await judge.agree(None, said, f"{said} There is tea. There is cake.")
    assert not await judge.agree(None, "Yes. Oak. Pine. Elm.", "Yes. Tea. Cake. Bread.")


async def test_code_is_compared_by_its_letters():
    one = "So:\n```python\nfor x in a:\n    print(x)\n```"
    assert await near(0.99, one, one + "\n")
    assert not await near(0.99, one, one.replace("print(x)", "print(a)"))


def test_a_number_with_a_point_and_a_list_are_taken_apart_rightly():
    assert sentences("It is 3.14. Use:\n- oak\n* pine\n\n!") == [
        "It is 3.14.", "Use:", "oak", "pine"
    ]  # fmt: skip
    assert len(sentences("One. " * 1000)) <= 24


async def test_what_the_embedder_cannot_read_is_not_judged():
    assert await near(None, "one", "other") is None
    with pytest.raises(EmbedderFault):
        await near(EmbedderFault("broken"), "one", "other")


async def test_a_judge_does_not_see_which_answer_is_the_stored_one():
    semantic = Near(0.9)
    judge = EmbeddingJudge(lambda: semantic)
    await judge.agree(None, "alpha words", "beta words")
    await judge.agree(None, "beta words", "alpha words")
    assert semantic.seen[0] == semantic.seen[1]


def chat(content, **more):
    return json.dumps({"choices": [{"message": {"content": content}}], **more}).encode()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (chat("Lima."), "Lima."),
        (chat([{"type": "text", "text": "Li"}, {"type": "text", "text": "ma."}]), "Lima."),
        (b'{"choices": [{"text": "Lima."}]}', "Lima."),
        (b'{"choices": [{"text": "a"}, {"text": "b"}]}', "a\nb"),
        (b'{"output": [{"type": "reasoning"}, {"content": [{"text": "Lima."}]}]}', "Lima."),
        (chat(None), ""),
        (b"{}", ""),
        (b"no json", None),
    ],
)
def test_the_text_of_an_answer_is_found_on_every_surface(body, text):
    assert text_in(body) == text


def test_an_answer_that_calls_tools_says_nothing_to_compare():
    payload = Payload(
        surface=Surface.CHAT,
        headers=(),
        body=chat("Lima."),
        usage=Usage(),
        usage_known=False,
        model="m",
        has_tool_calls=True,
    )
    assert text_of(payload) == ""
