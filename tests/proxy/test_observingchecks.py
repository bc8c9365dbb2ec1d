"""What is wrong with the keys of `prices`, `access_log` and `tracing`."""

import pytest

from proxy.settings.checks import Machine, check_config
from proxy.settings.config import Config, Route, Store
from proxy.settings.listeners import Admin
from proxy.settings.observing import Tracing
from proxy.settings.record import Record
from proxy.settings.units import Secret
from proxy.settings.upstreams import Upstream

EVERYTHING = Machine(has_module=lambda _: True, has_path=lambda _: True, can_keep=lambda _: True)
NOTHING = Machine(has_module=lambda _: False, has_path=lambda _: False, can_keep=lambda _: False)
GOOD = "http://localhost:4318"


def findings(machine=EVERYTHING, **parts):
    """The findings of a config that would be right without `parts`, as `path: message`."""
    config = Config(
        upstreams={"u": Upstream(base_url="http://h")}, routes=(Route(to="u"),), **parts
    )
    return [f"{'/'.join(map(str, f.path))}: {f.message}" for f in check_config(config, machine)]


@pytest.mark.parametrize("path", ["off", "stdout", "var/access.log"])
def test_a_log_that_can_be_written_is_no_finding(path):
    assert findings(EVERYTHING, access_log=path) == []


def test_a_log_that_cannot_be_written_is_told():
    (finding,) = findings(NOTHING, access_log="/nowhere/access.log")
    assert finding.startswith("access_log: cannot be written here: '/nowhere/access.log'")
    assert findings(NOTHING, access_log="stdout") == []
    (finding,) = findings(access_log="")
    assert finding == "access_log: expected `off`, `stdout` or a path"


def test_tracing_needs_its_extra():
    assert findings(EVERYTHING, tracing=Tracing(endpoint=GOOD)) == []
    (finding,) = findings(NOTHING, tracing=Tracing(endpoint=GOOD))
    assert "pip install 'rejoinder[otel]'" in finding


@pytest.mark.parametrize(
    "url", ["localhost:4318", "grpc://h:4317", "http://", "http://h?a=b", "http://[", "http://h:x"]
)
def test_an_endpoint_that_is_no_url_is_told(url):
    (finding,) = findings(tracing=Tracing(endpoint=url))
    assert finding.startswith("tracing/endpoint: expected the URL of a collector")


def test_a_header_that_cannot_be_sent_is_told_without_its_value():
    bad = Tracing(endpoint=GOOD, headers={"x key": Secret("v"), "x-key": Secret("geheim\n")})
    name, value = findings(tracing=bad)
    assert name == "tracing/headers/x key: not a name that a header can have"
    assert "geheim" not in value


@pytest.mark.parametrize(
    ("place", "parts"),
    [
        ("record/path: `access_log`", {"access_log": "log", "record": Record(path="./log")}),
        ("record/path: `access_log`", {"access_log": "log.1", "record": Record(path="log")}),
        ("record/path: `store.path`", {"store": Store(path="db"), "record": Record(path="db-wal")}),
        ("access_log: `store.path`", {"store": Store(path="db"), "access_log": "x/../db-shm"}),
        ("admin/audit_log: `access_log`", {"access_log": "a", "admin": Admin(audit_log="a")}),
    ],
)
def test_two_parts_that_write_to_one_file_are_told_once(place, parts):
    (finding,) = findings(**parts)
    assert finding == f"{place} has this file, or one of its files"
