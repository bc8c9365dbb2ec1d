"""The admin port's own description."""

import json

import httpx
from misbehaving import serving
from running import CONFIG, good, running

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
