"""The admin port's own description."""

import json

import httpx
import pytest
from misbehaving import serving
from running import CONFIG, good, running

from proxy.admin.deeds import Deed, Deeds
from proxy.settings.config import Config
from proxy.settings.listeners import Admin

PATHS = {
    "/cache/stats", "/cache/entries", "/cache/entries/{key}", "/cache/purge", "/cache/export",
    "/cache/import", "/cache/pairs", "/cache/feedback", "/cache/recent", "/cache/explain",
    "/cache/erase", "/audit", "/config", "/reload", "/metrics", "/healthz", "/readyz",
}  # fmt: skip


def config(upstream, *, token=""):
    text = CONFIG.format(upstream=upstream.url, options="", policy="")
    listen = 'admin: {listen: "127.0.0.1:0"'
    assert listen in text
    return text.replace(listen, listen + token)


async def test_every_path_is_described_with_its_bodies_and_answers(tmp_path):
    async with serving(good) as upstream, running(config(upstream), tmp_path) as p:
        answer = await p.http.get(f"{p.admin_url}/openapi.json")
        assert answer.status_code == 200
        told = answer.json()
        assert told["openapi"].startswith("3.")
        assert told["paths"].keys() >= PATHS
        purge = told["paths"]["/cache/purge"]["post"]
        name = purge["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        fields = told["components"]["schemas"][name.rsplit("/", 1)[1]]["properties"]
        assert fields.keys() >= {"tags", "keys", "models", "tenants", "all", "soft", "dry_run"}
        assert "Done when it returns" in purge["description"]
        parameters = told["paths"]["/cache/entries"]["get"]["parameters"]
        assert {one["name"] for one in parameters} == {
            "tag", "model", "tenant", "q", "cursor", "limit"
        }  # fmt: skip


async def test_no_reference_of_the_description_points_nowhere(tmp_path):
    async with serving(good) as upstream, running(config(upstream), tmp_path) as p:
        told = (await p.http.get(f"{p.admin_url}/openapi.json")).json()

    def references(value):
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            value = list(value.values())
        if isinstance(value, list):
            for one in value:
                yield from references(one)

    found = set(references(told))
    assert found
    known = told["components"]["schemas"]
    assert {one for one in found if one.rsplit("/", 1)[1] not in known} == set()
    assert "cdn" not in json.dumps(told)


async def test_the_description_is_behind_the_gate(tmp_path):
    token = ", token: a-long-admin-token"
    async with serving(good) as upstream, running(config(upstream, token=token), tmp_path) as p:
        for path in ("/openapi.json", "/openapi.json/openapi.json", "/openapi.json/x"):
            assert (await p.http.get(f"{p.admin_url}{path}")).status_code == 401
        keyed = {"authorization": "Bearer a-long-admin-token"}
        async with httpx.AsyncClient(headers=keyed) as http:
            assert (await http.get(f"{p.admin_url}/openapi.json")).status_code == 200
            foreign = {"host": "evil.example"}
            answer = await http.get(f"{p.admin_url}/openapi.json", headers=foreign)
            assert answer.status_code == 403


async def test_what_no_scan_gave_as_a_cursor_is_refused(tmp_path):
    async with serving(good) as upstream, running(config(upstream), tmp_path) as p:
        for path in ("/cache/entries", "/cache/export"):
            for cursor in ("x", "-1", "9" * 30):
                answer = await p.http.get(f"{p.admin_url}{path}", params={"cursor": cursor})
                assert answer.status_code == 400, answer.text
                assert answer.json()["error"]["param"] == "cursor"


async def test_bodies_that_are_nested_too_deeply_are_refused(tmp_path):
    async with serving(good) as upstream, running(config(upstream), tmp_path) as p:
        deep = b'{"request": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        for path in ("explain", "purge", "feedback", "erase"):
            answer = await p.http.post(f"{p.admin_url}/cache/{path}", content=deep)
            assert answer.status_code == 400, answer.text
            assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_a_failure_that_nobody_foresaw_is_told_in_the_one_shape_and_logged(tmp_path, caplog):
    class Broken:
        def __init__(self, config):
            pass

        async def latest(self, _limit, *, what, before):
            raise LookupError(what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proxy.app.Deeds", Broken)
        async with serving(good) as upstream, running(config(upstream), tmp_path) as p:
            answer = await p.http.get(f"{p.admin_url}/audit")
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"
    (record,) = [one for one in caplog.records if one.name == "rejoinder.admin"]
    assert record.exc_info is not None


def test_the_audit_log_is_where_the_config_in_force_says(tmp_path):
    paths = [tmp_path / "old", tmp_path / "new"]
    configs = [Config(upstreams={}, routes=(), admin=Admin(audit_log=str(one))) for one in paths]
    deeds = Deeds(lambda: configs[0])
    deed = Deed(at=1.0, what="purge", who="me", ok=True, asked=None, result=None)
    deeds.write_now(deed)
    configs.reverse()
    paths[1].write_bytes(b'{"at": 1')
    deeds.write_now(deed)
    deeds.write_now(deed)
    assert [path.read_bytes().count(b"\n") for path in paths] == [1, 3]
