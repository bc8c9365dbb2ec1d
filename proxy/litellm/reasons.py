"""Why a setting of LiteLLM has no counterpart here, by its name; the last part of a path counts."""

from types import MappingProxyType

_BUDGETS = "there are no budgets; `limits.each_tenant` and `tenants.limits` bound what is asked for"
_CALLBACKS = "metrics stand at /metrics of the admin port, and `tracing` speaks OpenTelemetry"
_COOLING = "servers that fail are left alone for a while by themselves"
_LENGTHS = (
    "tokens are not counted beforehand; `match.prompt_bytes` of a route tells long prompts apart"
)
_RATES = "upstreams have no limit a minute; `max_in_flight` bounds what is under way"
_REQUESTS = "requests are passed on as they are"
_SHARED = "what one proxy knows of its servers is not shared; answers are, in the store"

REASONS = MappingProxyType({
    "alerting": "alerts are made from the metrics of the admin port",
    "allowed_fails": _COOLING,
    "budget_duration": _BUDGETS,
    "callbacks": _CALLBACKS,
    "content_policy_fallbacks": "answers are not judged by their content",
    "context_window_fallbacks": _LENGTHS,
    "cooldown_time": _COOLING,
    "database_url": "there is no database of keys: write each virtual key below `tenants.keys`",
    "drop_params": _REQUESTS,
    "enable_pre_call_checks": _LENGTHS,
    "environment_variables": "set them in the environment of the process",
    "failure_callback": _CALLBACKS,
    "guardrails": "answers are not judged by their content",

    "include": "other files are not read: take over each by itself",
    "max_budget": _BUDGETS,
    "max_tokens": _REQUESTS,
    "mcp_servers": "the proxy has no tools of its own",
    "namespace": "keys in Redis have a prefix of their own; another database keeps proxies apart",
    "redis_host": _SHARED,
    "redis_password": _SHARED,
    "redis_port": _SHARED,
    "rpm": _RATES,
    "sentinel_nodes": "Redis is reached directly or as a cluster",
    "json_logs": "`access_log` writes a line of JSON for each request",
    "set_verbose": "logs are made in one way",
    "store_model_in_db": "models stand in the config alone",
    "success_callback": _CALLBACKS,
    "temperature": _REQUESTS,
    "tpm": _RATES,
})  # fmt: skip


def reason_of(path: str) -> str:
    """For a person; every path has one."""
    return REASONS.get(path.rpartition(".")[2], "nothing here corresponds to it")
