"""Which requests fit the conditions of a route."""

import pytest

from proxy.call import Surface
from proxy.request.matching import Facts, Matcher, prompt_bytes
from proxy.settings.config import Match, Span
from proxy.settings.units import Bytes

BODY = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Sé breve."},
        {"role": "user", "content": [
            {"type": "text", "text": "Hola"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ]},
    ],
    "metadata": {"team": "search", "deep": {"er": "x"}},
    "stream": True,
    "n": 2,
    "temperature": 0.5,
    "stop": ["END", "STOP"],
    "user": None,
    "tools": [{"type": "function", "function": {"name": "look_up"}}],
}  # fmt: skip


def fits(match: Match, *, surface: Surface | None = Surface.CHAT, fields=BODY) -> bool:
    facts = Facts(model="m", path="/chat/completions", headers=(), tenant="t",
                  surface=surface, fields=fields)  # fmt: skip
    return Matcher(match).fits(facts, "m", "/v1/chat/completions")


@pytest.mark.parametrize(
    ("path", "glob", "fit"),
    [
        ("metadata.team", "search", True),
        ("metadata.team", "s*", True),
        ("metadata.team", "support", False),
        ("metadata.deep.er", "?", True),
        ("metadata.deep", "*", False),
        ("metadata.none", "*", False),
        ("metadata.team.more", "*", False),
        ("stream", "true", True),
        ("n", "2", True),
        ("temperature", "0.5", True),
        ("user", "null", True),
        ("stop", "STOP", True),
        ("stop", "END*STOP", False),
        ("tools.function.name", "look_*", True),
        ("messages.role", "system", True),
    ],
)
def test_a_field_of_the_body_is_found_by_its_path(path, glob, fit):
    assert fits(Match(body={path: glob})) is fit


def test_all_fields_must_fit():
    assert fits(Match(body={"n": "2", "stream": "true"}))
    assert not fits(Match(body={"n": "2", "stream": "false"}))


@pytest.mark.parametrize(
    ("low", "high", "fit"),
    [(0, 14, True), (14, None, True), (0, 13, False), (15, None, False), (14, 14, True)],
)
def test_the_size_of_the_prompt_is_the_bytes_of_its_text(low, high, fit):
    span = Span(min=Bytes(low), max=None if high is None else Bytes(high))
    assert fits(Match(prompt_bytes=span)) is fit


@pytest.mark.parametrize(
    ("surface", "fields", "size"),
    [
        (Surface.CHAT, BODY, 14),
        (Surface.COMPLETIONS, {"prompt": ["ab", "é"]}, 4),
        (Surface.COMPLETIONS, {"prompt": [1, 2, 3]}, 12),
        (Surface.COMPLETIONS, {}, 0),
        (Surface.EMBEDDINGS, {"input": "abc"}, 3),
        (Surface.EMBEDDINGS, {"input": [[1, 2], [3]]}, 12),
        (Surface.RESPONSES, {"instructions": "ab", "input": "cd"}, 4),
        (Surface.EMBEDDINGS, {"input": "\ud800"}, 3),
    ],
)
def test_prompts_of_all_surfaces_have_a_size(surface, fields, size):
    assert prompt_bytes(surface, fields) == size


def test_a_body_that_is_passed_through_unread_fits_no_condition_on_it():
    assert fits(Match(), surface=None, fields={})
    assert not fits(Match(body={"model": "*"}), surface=None, fields={})
    assert not fits(Match(prompt_bytes=Span()), surface=None, fields={})
