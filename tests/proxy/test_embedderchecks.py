"""What a config may say of its embedder."""

from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.settings.file import parse

REST = 'upstreams: {m: {base_url: "http://h/v1"}}\nroutes: [{match: {}, to: m}]\nembedder: '


@pytest.mark.parametrize(
    ("embedder", "told"),
    [
        ('{model: m, base_url: "http://h/v1", scripts: [latn]}', "did you mean `latin`"),
        ('{model: m, base_url: "http://user@h/v1"}', "no user, query or fragment"),
        ('{model: m, base_url: "h:80/v1"}', "must begin with http"),
        ('{model: "hf:a"}', "no name of a model on the hub"),
        ("{model: /no/such/folder}", "no such file or folder"),
        ('{model: "package:json", api_key: k}', "are for a server"),
        ('{model: "package:json", dimensions: 8}', "are for a server"),
    ],
)
def test_an_embedder_that_cannot_work_is_refused_with_its_line(embedder: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        parse(Path("c.yaml"), f"{REST}{embedder}\n", environ={})
    assert str(caught.value).startswith("c.yaml:3: embedder")


@pytest.mark.parametrize(
    "embedder",
    [
        '{model: m, base_url: "http://h/v1", scripts: any, dimensions: 256}',
        '{model: m, base_url: "https://h", api_key: k, scripts: [latin, cjk], prefix: "query: "}',
        '{model: "hf:intfloat/multilingual-e5-small", prefix: "query: "}',
    ],
)
def test_servers_and_models_of_the_hub_are_accepted(embedder: str) -> None:
    assert parse(Path("c.yaml"), f"{REST}{embedder}\n", environ={}).config.embedder is not None
