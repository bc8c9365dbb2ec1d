"""The `openai` package on everything that is not chat."""

import hashlib

import openai
import pytest
from chats import TEXT
from surfaces import SPEECH, vector


def test_legacy_completions_replay_in_both_forms(client, seen, question):
    asked = {"model": "org/text", "prompt": [question, "two"]}
    first, again = (client.completions.create(**asked) for _ in range(2))
    assert first.to_dict() == again.to_dict()
    chunks = list(client.completions.create(**asked, stream=True))
    texts = {0: "", 1: ""}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert list(texts.values()) == [choice.text for choice in first.choices]
    assert all(chunk.usage is None for chunk in chunks)
    counted = list(
        client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    assert counted[-1].usage.total_tokens == 12
    assert seen.words == ["miss", "exact", "exact", "exact"]


def test_streamed_legacy_completions_serve_plain_ones(client, seen, question):
    asked = {"model": "org/text", "prompt": question}
    first, again = (
        [c.to_dict() for c in client.completions.create(**asked, stream=True)] for _ in range(2)
    )
    assert first == again
    plain = client.completions.create(**asked)
    assert plain.choices[0].text == f" echo of {question}"
    assert plain.usage.total_tokens == 12
    assert seen.words == ["miss", "exact", "exact"]


def test_embeddings_are_the_same_in_both_encodings(client, upstream, seen, question):
    asked = {"model": "org/embed", "input": [question, f"{question} two"]}
    first, again = (client.embeddings.create(**asked) for _ in range(2))  # base64, the default
    floats = client.embeddings.create(**asked, encoding_format="float")
    assert first.to_dict() == again.to_dict()
    for answer in (first, floats):
        assert [item.embedding for item in answer.data] == [vector(t) for t in asked["input"]]
        assert [item.index for item in answer.data] == [0, 1]
    assert seen.words[:2] == ["miss", "exact"]
    assert len(upstream.asks(question)) in (1, 2)


def test_a_batch_sends_only_the_inputs_that_are_new(client, upstream, seen, question):
    texts = [f"{question} {n}" for n in range(6)]
    client.embeddings.create(model="org/embed", input=texts[:3])
    batch = client.embeddings.create(model="org/embed", input=[*texts[::-1], texts[0]])
    assert [item.embedding for item in batch.data] == [
        vector(text) for text in [*texts[::-1], texts[0]]
    ]
    assert upstream.asks(question)[1].json["input"] == texts[:2:-1]
    assert client.embeddings.create(model="org/embed", input=texts[4]).data[0].embedding == vector(
        texts[4]
    )
    assert seen.words == ["miss", "miss", "exact"]


def test_token_ids_are_inputs_too(client, seen):
    for tokens in ([101, 7592, 102], [[101, 7592], [2088, 102]]):
        first, again = (client.embeddings.create(model="org/embed", input=tokens) for _ in range(2))
        assert first.to_dict() == again.to_dict()
    assert seen.words == ["miss", "exact", "miss", "exact"]


def test_models_are_listed_and_ids_have_slashes(client):
    listed = list(client.models.list())
    assert {"acme/house-model", "org/chat"} <= {model.id for model in listed}
    for model in listed:
        assert client.models.retrieve(model.id).to_dict() == model.to_dict()
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("acme/no-such-model")
    assert caught.value.code == "model_not_found"


def test_an_alias_asks_for_the_model_behind_it(client, upstream, question):
    answer = client.chat.completions.create(
        model="acme/house-model", messages=[{"role": "user", "content": question}]
    )
    assert answer.choices[0].message.content == TEXT
    (asked,) = upstream.asks(question)
    assert asked.json["model"] == "org/chat"


def test_files_go_up_and_down_untouched(client, seen, upstream):
    content = bytes(range(256)) * 4096
    uploaded = client.files.create(file=("data.bin", content), purpose="assistants")
    assert uploaded.bytes == len(content)
    assert uploaded.sha256 == hashlib.sha256(content).hexdigest()
    assert uploaded.filename == "data.bin"
    assert client.files.content("file-1").read() == SPEECH
    assert client.files.delete("file-1").deleted
    assert seen.words == [None, None, None]


def test_pages_are_followed_by_their_cursor(client, upstream):
    assert [f.id for f in client.files.list(limit=2)] == ["file-1", "file-2", "file-3", "file-4"]
    pages = [asked.path for asked in upstream.asked if asked.path.startswith("/v1/files?")]
    assert pages[-2:] == ["/v1/files?limit=2", "/v1/files?after=file-2&limit=2"] or pages[-2:] == [
        "/v1/files?limit=2",
        "/v1/files?limit=2&after=file-2",
    ]


def test_sound_goes_both_ways(client, seen):
    heard = client.audio.transcriptions.create(model="org/ear", file=("a.mp3", SPEECH))
    assert heard.text == f"heard {len(SPEECH)} bytes"
    spoken = client.audio.speech.create(model="org/voice", voice="alloy", input="Hello")
    assert spoken.read() == SPEECH
    with client.audio.speech.with_streaming_response.create(
        model="org/voice", voice="alloy", input="Hello"
    ) as response:
        assert response.headers["content-type"] == "audio/mpeg"
        assert b"".join(response.iter_bytes()) == SPEECH
    assert seen.words == [None, None, None]


def test_unknown_paths_get_the_upstream_s_error(client):
    with pytest.raises(openai.NotFoundError, match="Invalid URL"):
        client.fine_tuning.jobs.list()
