"""The JSON Schema that editors read, and the config that is shown to operators."""

import json
import typing

import msgspec
import pytest

from proxy.settings import config as written
from proxy.settings import listeners, upstreams
from proxy.settings.config import Admin, Config, Policy, Route, Tenants
from proxy.settings.file import dump, load
from proxy.settings.schema import schema
from proxy.settings.units import Bytes, Duration, Secret
from proxy.settings.upstreams import Upstream

STRUCTS = [
    kind
    for module in (written, listeners, upstreams)
    for kind in vars(module).values()
    if isinstance(kind, type)
    and issubclass(kind, msgspec.Struct)
    and kind.__module__ == module.__name__
    and kind.__struct_config__.forbid_unknown_fields
]


@pytest.fixture(scope="module")
def definitions():
    return json.loads(schema())["$defs"]


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_every_key_is_explained_and_carries_its_default(definitions, kind):
    shown = definitions[kind.__name__]
    assert shown["additionalProperties"] is False
    for field in msgspec.structs.fields(kind):
        key = shown["properties"][field.name]
        assert len(key["description"]) > 10, field.name
        assert ("default" in key) is not field.required, field.name
        assert (field.name in shown["required"]) is field.required


def test_units_and_defaults_are_told_as_they_are_written(definitions):
    ttl = definitions["Policy"]["properties"]["ttl"]
    assert ttl["default"] == "1h"
    assert "`10s`, `5m`, `1h`" in ttl["description"]
    assert definitions["KVCache"]["properties"]["memory"]["default"] == "256MiB"
    assert definitions["Upstream"]["properties"]["timeout"]["default"]["first_byte"] == "2m"


def test_the_defaults_of_the_schema_are_the_defaults_of_the_config(definitions):
    """Read each default back through its own type: it is what the config takes."""
    for kind in STRUCTS:
        hints = typing.get_type_hints(kind, include_extras=True)
        for field in msgspec.structs.fields(kind):
            if field.default_factory is msgspec.NODEFAULT:
                continue
            told = definitions[kind.__name__]["properties"][field.name]["default"]
            read = msgspec.convert(told, hints[field.name], dec_hook=written_hook)
            assert read == field.default_factory()


def written_hook(kind, value):
    return Secret(value) if kind is Secret else kind.parse(value)


def test_a_dump_masks_every_secret():
    config = Config(
        upstreams={
            "u": Upstream(
                base_url="http://h",
                credential="own",
                api_key=Secret("sk-one"),
                headers={"x-extra": Secret("sk-two")},
                query={"key": Secret("sk-three")},
            )
        },
        routes=(Route(to="u"),),
        admin=Admin(token=Secret("sk-four")),
        tenants=Tenants(keys={Secret("sk-five"): "acme", Secret("sk-six"): "b"}),
    )
    text = dump(config).decode()
    assert "sk-" not in text
    assert "sk-" not in repr(config)
    shown = json.loads(text)
    assert shown["upstreams"]["u"]["api_key"] == "***"
    assert list(shown["tenants"]["keys"].values()) == ["acme", "b"]
    assert shown["upstreams"]["u"]["timeout"]["connect"] == "5s"


def test_a_dump_without_secrets_reads_back_as_the_same_config(tmp_path):
    config = Config(
        upstreams={"u": Upstream(base_url="http://h")},
        routes=(Route(to="u", cache="p"),),
        policies={"p": Policy(ttl=Duration(90), normalize=("trim",))},
    )
    path = tmp_path / "dumped.yaml"
    path.write_bytes(dump(config))
    assert load(path, environ={}) == config


@pytest.mark.parametrize("seconds", [0, 0.25, 1, 90, 3600, 86400, 100_000, 0.5])
def test_a_duration_is_written_as_it_is_read(seconds):
    assert Duration.parse(str(Duration(seconds))) == seconds


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 64 * 2**20, 3 * 2**40, 10**9])
def test_a_size_is_written_as_it_is_read(size):
    assert Bytes.parse(str(Bytes(size))) == size
