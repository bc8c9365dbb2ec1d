"""LiteLLM's configs, of the kinds that people write, and what `rejoinder import-litellm` makes of
them: the file passes `rejoinder check`, and requests find their way as they did."""

import contextlib
import json
from pathlib import Path

import pytest
from commandline import run_command
from misbehaving import plain, serving
from proxyprocess import serving_process
from running import completion

from proxy.commands.failure import MISUSED, OK, PARTIAL
from proxy.commands.import_litellm import _missing
from proxy.errors import ConfigError
from proxy.litellm.providers import PROVIDERS
from proxy.litellm.translation import translate
from proxy.settings.file import parse

TEAM = """
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: azure/gpt-4o-eu
      api_base: os.environ/AZURE_API_BASE
      api_key: os.environ/AZURE_API_KEY
      api_version: "2025-06-01"
      rpm: 900
    model_info: {base_model: azure/gpt-4o, mode: chat}
  - model_name: gpt-4o
    litellm_params: {model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY, order: 2}
  - model_name: llama
    litellm_params:
      {model: hosted_vllm/meta/llama, api_base: "http://10.0.0.5:8000/v1", weight: 2}
  - model_name: llama
    litellm_params:
      {model: hosted_vllm/meta/llama, api_base: "http://10.0.0.6:8000/v1", weight: 1}
  - model_name: sonnet
    litellm_params: {model: anthropic/claude-sonnet-4, timeout: 90, temperature: 0.2}
  - model_name: titan
    litellm_params: {model: bedrock/amazon.titan-text, aws_region_name: eu-west-1}
  - model_name: embed
    litellm_params: {model: text-embedding-3-small}
    model_info: {mode: embedding, input_cost_per_token: 2.0e-8}
  - model_name: "*"
    litellm_params: {model: "openai/*", api_key: os.environ/OPENAI_API_KEY}
litellm_settings:
  drop_params: true
  num_retries: 3
  request_timeout: 300
  fallbacks: [{llama: [gpt-4o, gone]}, {"gpt-5": [gpt-4o]}]
  cache: true
  cache_params:
    type: redis
    host: os.environ/REDIS_HOST
    port: 6379
    password: os.environ/REDIS_PASSWORD
    namespace: prod
    ttl: 600
    supported_call_types: [acompletion]
  success_callback: [langfuse]
router_settings:
  routing_strategy: latency-based-routing
  model_group_alias: {gpt-4: gpt-4o, quick: {model: llama, hidden: true}}
general_settings:
  master_key: os.environ/LITELLM_MASTER_KEY
  database_url: os.environ/DATABASE_URL
"""
TEAM_ENVIRON = {
    "AZURE_API_BASE": "https://eu.openai.azure.com",
    "AZURE_API_KEY": "a",
    "OPENAI_API_KEY": "o",
    "ANTHROPIC_API_KEY": "c",
    "REDIS_HOST": "redis.internal",
    "REDIS_PASSWORD": "p%40ss",
    "LITELLM_MASTER_KEY": "sk-master",
}
LAPTOP = """
model_list:
  - model_name: qwen
    litellm_params: {model: ollama_chat/qwen3, api_base: http://localhost:11434}
  - model_name: gpt-4o-mini
    litellm_params: {model: gpt-4o-mini, api_key: sk-in-the-file}
litellm_settings: {cache: true}
"""
MEANING = """
model_list:
  - {model_name: m, litellm_params: {model: mistral/small, api_key: os.environ/MISTRAL_API_KEY}}
litellm_settings:
  cache: true
  cache_params:
    type: redis-semantic
    host: 10.0.0.9
    port: "6380"
    ssl: true
    similarity_threshold: 0.8
    redis_semantic_cache_embedding_model: text-embedding-ada-002
"""
LIVE = """
model_list:
  - model_name: chat
    litellm_params: {{model: openai/test-1, api_base: "{first}/v1", api_key: sk-first}}
  - model_name: backup
    litellm_params: {{model: openai/test-1, api_base: "{second}/v1", api_key: sk-second}}
router_settings: {{fallbacks: [{{chat: [backup]}}], num_retries: 0}}
litellm_settings: {{cache: true, cache_params: {{type: disk}}}}
general_settings: {{master_key: sk-master}}
"""


def config_of(text, **environ):
    """What the translation says to this proxy."""
    return parse(Path("new.yaml"), translate(text, name="old.yaml").text, environ=environ).config


def left_out(text):
    return {one.where: one.message for one in translate(text, name="x").remarks if one.left_out}


def model_list(*params, **more):
    items = [{"model_name": "m", "litellm_params": one} for one in params]
    return json.dumps({"model_list": items, **more})


@pytest.fixture
def team():
    return config_of(TEAM, **TEAM_ENVIRON)


def route_of(config, model):
    return next(route for route in config.routes if route.match.model == model)


def test_a_name_with_several_deployments_is_one_route_to_all_of_them(team):
    route = route_of(team, "gpt-4o")
    assert route.to == ("azure", "openai")
    azure, openai = (team.upstreams[name] for name in route.to)
    assert azure.base_url == "https://eu.openai.azure.com/openai/deployments/gpt-4o-eu"
    assert (azure.auth, azure.api_key, azure.query) == (
        "api-key",
        "a",
        {"api-version": "2025-06-01"},
    )
    assert (openai.base_url, openai.credential) == ("https://api.openai.com/v1", "own")
    assert route.model is None


def test_like_servers_are_one_upstream_with_weights(team):
    route = route_of(team, "llama")
    assert route.to == "hosted-vllm"
    fleet = team.upstreams["hosted-vllm"]
    assert fleet.base_url == {"http://10.0.0.5:8000/v1": 2, "http://10.0.0.6:8000/v1": 1}
    assert (fleet.balance, fleet.credential) == ("least_busy", "passthrough")
    assert route.model.rewrite == "meta/llama"


def test_names_come_before_patterns_so_that_each_is_reached(team):
    assert [route.match.model for route in team.routes] == [
        "gpt-4o", "llama", "sonnet", "embed", "*",
    ]  # fmt: skip


def test_retries_times_and_aliases_are_taken_over(team):
    assert {route.retries for route in team.routes} == {3}
    assert team.upstreams["anthropic"].timeout.total == 90
    assert team.upstreams["openai"].timeout.total == 300
    assert team.aliases == {"gpt-4": "gpt-4o", "quick": "llama"}


def test_prices_are_those_of_a_million_tokens(team):
    ((name, price),) = team.prices.items()
    assert (name, price.input, price.output) == ("text-embedding-3-small", 0.02, 0)


def test_the_master_key_is_a_tenant_s_key(team):
    assert team.tenants.keys == {"sk-master": "main"}
    assert team.listen == "0.0.0.0:4000"


def test_redis_is_the_store_and_only_the_kinds_that_were_cached_are(team):
    assert team.store.redis == "redis://:p%40ss@redis.internal:6379/0"
    assert team.policies["standard"].ttl == 600
    assert route_of(team, "gpt-4o").cache == "standard"
    assert route_of(team, "embed").cache == "none"


def test_what_has_no_counterpart_is_named_with_its_place_and_reason():
    lost = left_out(TEAM)
    assert set(lost) == {
        "fallbacks",
        "model_list[4].litellm_params.temperature",
        "model_list[5]",
        "litellm_settings.drop_params",
        "litellm_settings.success_callback",
        "litellm_settings.cache_params.namespace",
        "general_settings.database_url",
    }
    assert "tenants.keys" in lost["general_settings.database_url"]
    text = translate(TEAM, name="x").text
    tail = text.partition("# Not as it was in LiteLLM:")[2]
    assert all(place in tail for place in lost if place != "fallbacks")


def test_a_fallback_to_another_model_is_left_out():
    remarks = [one.message for one in translate(TEAM, name="x").remarks if one.where == "fallbacks"]
    assert any("llama: not asked for gpt-4o" in message for message in remarks)
    assert any("its fallback gone is no model" in message for message in remarks)
    assert any("gpt-5: no deployment of this name" in message for message in remarks)


def test_a_laptop_s_config_serves_this_machine_only():
    config = config_of(LAPTOP)
    assert config.listen == "127.0.0.1:4000"
    assert config.tenants is None
    assert config.upstreams["ollama-chat"].base_url == "http://localhost:11434/v1"
    assert route_of(config, "qwen").model.rewrite == "qwen3"
    assert (config.store.path, config.store.redis) == (None, "")


def test_a_key_in_the_file_is_kept_and_pointed_at():
    translation = translate(LAPTOP, name="x")
    assert "A key in a file is easily lost sight of" in translation.text
    assert config_of(LAPTOP).upstreams["openai"].api_key == "sk-in-the-file"
    assert all("sk-in-the-file" not in one.message for one in translation.remarks)


def test_answers_by_meaning_get_an_embedder_and_its_own_threshold():
    config = config_of(MEANING, MISTRAL_API_KEY="k")
    assert config.store.redis == "rediss://:@10.0.0.9:6380/0"
    assert config.policies["standard"].semantic.threshold is None
    assert config.embedder is not None
    (remark, *_) = translate(MEANING, name="x").remarks
    assert remark.where == "litellm_settings.cache_params.similarity_threshold"
    assert "mean something else" in remark.message


def test_a_cache_that_callers_switch_on_is_left_out():
    text = model_list(
        {"model": "gpt-4o"},
        litellm_settings={"cache": True, "cache_params": {"mode": "default_off"}},
    )
    assert config_of(text, OPENAI_API_KEY="k").policies == {}
    assert "cache_params.mode: callers cannot" in translate(text, name="x").text
    assert "litellm_settings.cache_params.mode" in left_out(text)


def test_a_cache_that_is_off_stays_off():
    text = model_list({"model": "gpt-4o"}, litellm_settings={"cache_params": {"type": "redis"}})
    config = config_of(text, OPENAI_API_KEY="k")
    assert (config.policies, config.store.redis) == ({}, "")
    assert {route.cache for route in config.routes} == {"none"}


def test_a_cluster_is_reached_by_its_first_node():
    params = {
        "type": "redis",
        "redis_startup_nodes": [{"host": "n1", "port": 7001}, {"host": "n2"}],
    }
    settings = {"cache": True, "cache_params": params}
    text = model_list({"model": "gpt-4o"}, litellm_settings=settings)
    assert config_of(text, OPENAI_API_KEY="k").store.redis == "redis://:@n1:7001/0"


def test_a_prefix_that_clients_write_is_left_out():
    text = json.dumps(
        {
            "model_list": [
                {"model_name": "openai/*", "litellm_params": {"model": "openai/*"}},
                {"model_name": "gpt-*", "litellm_params": {"model": "openai/gpt-*"}},
            ]
        }
    )
    assert [route.match.model for route in config_of(text, OPENAI_API_KEY="k").routes] == ["gpt-*"]
    assert "not without its prefix" in left_out(text)["model_list[0]"]


def test_fallbacks_of_the_same_model_are_asked_next():
    items = [
        {"model_name": "gpt-4o", "litellm_params": {"model": "openai/gpt-4o"}},
        {
            "model_name": "eu",
            "litellm_params": {"model": "azure/d1", "api_base": "https://x", "api_version": "1"},
            "model_info": {"base_model": "azure/gpt-4o"},
        },
    ]
    text = json.dumps({"model_list": items, "litellm_settings": {"default_fallbacks": ["eu"]}})
    config = config_of(text, OPENAI_API_KEY="k", AZURE_API_KEY="k")
    assert route_of(config, "gpt-4o").to == ("openai", "azure")


def test_weights_out_of_range_keep_their_proportion():
    params = [
        {"model": "openai/m", "api_base": f"http://h{n}/v1", "api_key": "k", "tpm": tpm}
        for n, tpm in enumerate((3_000_000, 1_000_001))
    ]
    urls = config_of(model_list(*params)).upstreams["openai"].base_url
    assert urls == {"http://h0/v1": 1000, "http://h1/v1": 333}


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_every_provider_s_config_passes_the_check(provider):
    params = {"model": f"{provider}/some/model"}
    if not PROVIDERS[provider].base_url:
        params["api_base"] = "https://h.internal/v1"
    environ = dict.fromkeys((PROVIDERS[provider].key, "AZURE_API_VERSION"), "k")
    (upstream,) = config_of(model_list(params), **environ).upstreams.values()
    assert upstream.credential == ("own" if PROVIDERS[provider].key else "passthrough")


@pytest.mark.parametrize(
    "value",
    [
        "${HOME}",
        "a: b # c",
        "line\nbreak",
        "true",
        "12",
        "'",
        '"',
        "{",
        "ünï",
        "os.environ/no name",
    ],
)
def test_any_text_is_written_so_that_it_is_read_back(value):
    text = model_list({"model": "openai/m", "extra_headers": {"x-one": "1"}, "api_key": value})
    assert config_of(text).upstreams["openai"].api_key == value


@pytest.mark.parametrize(
    "text", ["", "[]", "a: [", "model_list: 3", "model_list: [3]", "model_list: []", "a: 1"]
)
def test_what_is_no_config_of_litellm_is_refused(text):
    with pytest.raises(ConfigError):
        translate(text, name="x")


def rejoinder(*arguments, **environ):
    return run_command(*arguments, environ=environ)


@pytest.fixture
def old(tmp_path):
    def write(text):
        path = tmp_path / "litellm.yaml"
        path.write_text(text)
        return path

    return write


def test_the_file_passes_the_check_and_is_its_owner_s_alone(old, tmp_path):
    new = tmp_path / "new.yaml"
    done = rejoinder("import-litellm", old(TEAM), "-o", new, **TEAM_ENVIRON)
    assert (done.returncode, done.stdout) == (PARTIAL, "")
    assert "left out: litellm_settings.drop_params: requests are passed on" in done.stderr
    assert new.stat().st_mode & 0o777 == 0o600
    assert rejoinder("check", new, **TEAM_ENVIRON).returncode == OK
    again = rejoinder("import-litellm", old(TEAM), "-o", new)
    assert again.returncode == 1
    assert "cannot write" in again.stderr


def test_everything_taken_over_is_exit_code_0_and_the_config_alone_on_standard_output(old):
    done = rejoinder("import-litellm", old(LAPTOP))
    assert done.returncode == OK
    assert done.stdout == translate(LAPTOP, name="litellm.yaml").text


def test_json_names_the_variables_that_must_be_set(old):
    done = rejoinder("import-litellm", old(TEAM), "--json")
    report = json.loads(done.stdout)
    assert done.returncode == PARTIAL
    assert set(report["variables"]) == set(TEAM_ENVIRON)
    assert report["problems"] == []
    assert report["config"] == translate(TEAM, name="litellm.yaml").text


@pytest.mark.parametrize("text", ["a: [", "x: 1"])
def test_another_file_is_one_line_and_exit_code_2(old, text):
    done = rejoinder("import-litellm", old(text))
    assert (done.returncode, done.stdout) == (MISUSED, "")
    assert done.stderr.count("\n") == 1
    assert "litellm.yaml" in done.stderr


async def test_a_fallback_is_asked_with_its_own_key_and_its_answer_is_kept(tmp_path):
    seen = []

    async def broken(request, writer):
        seen.append(("first", request.header("authorization")))
        writer.write(plain(b"{}", status="503 Busy"))

    async def healthy(request, writer):
        seen.append(("second", request.header("authorization")))
        writer.write(plain(completion()))

    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(serving(broken))
        second = await stack.enter_async_context(serving(healthy))
        text = translate(LIVE.format(first=first.url, second=second.url), name="x").text
        text = text.replace("0.0.0.0:4000", "127.0.0.1:0")
        text = text.replace("var/rejoinder.db", str(tmp_path / "store.db"))
        text += '\nadmin: {listen: "127.0.0.1:0"}\n'
        process = await stack.enter_async_context(serving_process(text, tmp_path))
        assert (await process.ask(model="chat")).status_code == 401
        process.http.headers["authorization"] = "Bearer sk-master"
        answers = [await process.ask(model=model) for model in ("chat", "backup", "backup")]
    assert [answer.headers["x-cache"] for answer in answers] == ["miss", "exact", "exact"]
    assert seen == [("first", "Bearer sk-first"), ("second", "Bearer sk-second")]


def test_what_names_no_model_is_left_out_and_not_made_one():
    router = {"fallbacks": [5], "model_group_alias": {"x": 5, "y": {"model": None}}}
    text = model_list({"model": "openai/a"}, router_settings=router)
    translation = translate(text, name="config.yaml")
    told = [one.message for one in translation.remarks if one.left_out]
    assert any("5 does not say" in one for one in told)
    assert any(one.startswith("x: 5 is not") for one in told)
    assert any(one.startswith("y: None is not") for one in told)


def test_a_file_that_is_nested_too_deeply_is_told():
    with pytest.raises(ConfigError, match="nested too deeply"):
        translate("model_list: " + "[" * 5000 + "]" * 5000, name="config.yaml")


def test_a_variable_that_only_a_comment_names_is_not_asked_for():
    variables, _ = _missing(Path("a.yaml"), "# `${REJOINDER_NAME}`\nlisten: ${REJOINDER_PORT}\n")
    assert variables == ["REJOINDER_PORT"]
