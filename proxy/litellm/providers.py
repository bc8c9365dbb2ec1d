"""LiteLLM's names for providers that speak OpenAI's API, and where they are found."""

from types import MappingProxyType

import msgspec


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """`base_url`: empty where each installation has its own."""

    base_url: str = ""
    key: str = ""
    """The environment variable that LiteLLM takes the key from; empty: none is needed."""
    suffix: str = ""
    """What the OpenAI-compatible API has after the address that LiteLLM is given."""
    is_native_elsewhere: bool = False
    """LiteLLM translates to the provider's own API; here its OpenAI-compatible one is asked."""


PROVIDERS = MappingProxyType({
    "openai": Provider(base_url="https://api.openai.com/v1", key="OPENAI_API_KEY"),
    "text-completion-openai": Provider(
        base_url="https://api.openai.com/v1", key="OPENAI_API_KEY"
    ),
    "azure": Provider(key="AZURE_API_KEY"),
    "anthropic": Provider(
        base_url="https://api.anthropic.com/v1", key="ANTHROPIC_API_KEY", is_native_elsewhere=True
    ),
    "gemini": Provider(
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key="GEMINI_API_KEY",
        is_native_elsewhere=True,
    ),
    "cerebras": Provider(base_url="https://api.cerebras.ai/v1", key="CEREBRAS_API_KEY"),
    "deepinfra": Provider(base_url="https://api.deepinfra.com/v1/openai", key="DEEPINFRA_API_KEY"),
    "deepseek": Provider(base_url="https://api.deepseek.com/v1", key="DEEPSEEK_API_KEY"),
    "fireworks_ai": Provider(
        base_url="https://api.fireworks.ai/inference/v1", key="FIREWORKS_AI_API_KEY"
    ),
    "groq": Provider(base_url="https://api.groq.com/openai/v1", key="GROQ_API_KEY"),
    "mistral": Provider(base_url="https://api.mistral.ai/v1", key="MISTRAL_API_KEY"),
    "nvidia_nim": Provider(
        base_url="https://integrate.api.nvidia.com/v1", key="NVIDIA_NIM_API_KEY"
    ),
    "openrouter": Provider(base_url="https://openrouter.ai/api/v1", key="OPENROUTER_API_KEY"),
    "perplexity": Provider(base_url="https://api.perplexity.ai", key="PERPLEXITYAI_API_KEY"),
    "sambanova": Provider(base_url="https://api.sambanova.ai/v1", key="SAMBANOVA_API_KEY"),
    "together_ai": Provider(base_url="https://api.together.xyz/v1", key="TOGETHERAI_API_KEY"),
    "xai": Provider(base_url="https://api.x.ai/v1", key="XAI_API_KEY"),
    "ollama": Provider(base_url="http://localhost:11434", suffix="/v1"),
    "ollama_chat": Provider(base_url="http://localhost:11434", suffix="/v1"),
    "hosted_vllm": Provider(),
    "litellm_proxy": Provider(key="LITELLM_PROXY_API_KEY"),
    "llamafile": Provider(),
    "lm_studio": Provider(),
    "openai_like": Provider(),
})  # fmt: skip

_BY_NAME = (
    ("openai", ("gpt-", "chatgpt-", "o1", "o3", "o4", "text-embedding-", "davinci-", "babbage-")),
    ("anthropic", ("claude-",)),
)
"""Models that LiteLLM knows by their bare name."""


def provider_of(model: str) -> str | None:
    """The provider of a `litellm_params.model`; None: not known by its name."""
    first, slash, _ = model.partition("/")
    if slash:
        return first
    found = (name for name, beginnings in _BY_NAME if model.startswith(beginnings))
    return next(found, None)
