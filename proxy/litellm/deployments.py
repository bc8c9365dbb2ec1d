"""The items of LiteLLM's `model_list`: which server each one is, and what it calls the model."""

from collections.abc import Iterator
from urllib.parse import quote

import msgspec

from proxy.litellm.prices import price_of
from proxy.litellm.providers import PROVIDERS, Provider, provider_of
from proxy.litellm.section import Remark, Section, written

_AZURE = "azure"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is asked: what all servers of one upstream have in common."""

    provider: str
    api_key: str = ""
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    total_s: float | None = None
    first_byte_s: float | None = None
    max_in_flight: int | None = None

    @property
    def auth(self) -> str:
        """The header that carries the key, as the config names it."""
        return "api-key" if self.provider == _AZURE else "bearer"


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """One server of a group; texts are as this proxy's config writes them."""

    group: str
    """What clients call the model; may hold `*`."""
    base_url: str
    access: Access
    model: str | None
    """What the server calls it; None: it stands in the URL, and the server reads no other."""
    real_model: str
    """Which model it is, as far as is known: of an Azure deployment, `base_model` or its name."""
    weight: int
    order: float
    embeds: bool
    price: tuple[tuple[str, float], ...]
    """For a million tokens, by their kind."""
    remarks: tuple[Remark, ...]


class CannotAsk(Exception):
    """A deployment that no upstream of ours can be; the message says why."""


def deployment_of(item: Section, defaults: Access) -> Deployment:
    """Reads one item. `defaults`: what the whole config says of times and limits. Raises
    `CannotAsk`."""
    group = item.text("model_name")
    params, info = item.part("litellm_params"), item.part("model_info")
    full_name = params.text("model")
    if not group or not full_name:
        raise CannotAsk("`model_name` or `litellm_params.model` is missing")
    base = params.text("api_base") or params.text("base_url")
    known = params.text("custom_llm_provider") or provider_of(full_name)
    name = known or ("openai" if base else "")
    provider = PROVIDERS.get(name)
    if provider is None:
        raise CannotAsk(f"{full_name}: upstreams speak OpenAI's API, and this provider does not")
    info.text("id")
    model = full_name.removeprefix(f"{name}/")
    return Deployment(
        group=group,
        base_url=_base_url(base or provider.base_url, model, name, provider),
        model=_sent_model(group, model, name),
        access=_access(params, name, provider, defaults),
        real_model=info.text("base_model").removeprefix("azure/") or model,
        weight=_weight(params),
        order=params.number("order") or 0,
        embeds=info.text("mode") == "embedding",
        price=price_of(info, params),
        remarks=tuple(_remarks(params.path, full_name, name, base)),
    )


def _base_url(base: str, model: str, name: str, provider: Provider) -> str:
    if not base:
        raise CannotAsk(f"{model}: it has no `api_base`")
    base = base.rstrip("/")
    if name != _AZURE:
        return base if base.endswith(provider.suffix) else base + provider.suffix
    if "/openai/deployments/" in base:
        return base
    return f"{base.removesuffix('/openai')}/openai/deployments/{quote(model, safe='$}{')}"


def _sent_model(group: str, model: str, name: str) -> str | None:
    if "*" not in group:
        return None if name == _AZURE else model
    if model == group and name != _AZURE:
        return group
    raise CannotAsk(f"{group}: what clients write is passed on whole, not without its prefix")


def _access(params: Section, name: str, provider: Provider, defaults: Access) -> Access:
    headers = {key: written(str(value)) for key, value in params.mapping("extra_headers").items()}
    if organization := params.text("organization"):
        headers["OpenAI-Organization"] = organization
    version = params.text("api_version") or "${AZURE_API_VERSION}"
    in_flight = params.number("max_parallel_requests")
    return Access(
        provider=name,
        api_key=params.text("api_key") or (f"${{{provider.key}}}" if provider.key else ""),
        query=(("api-version", version),) if name == _AZURE else (),
        headers=tuple(headers.items()),
        total_s=params.number("timeout") or defaults.total_s,
        first_byte_s=params.number("stream_timeout") or defaults.first_byte_s,
        max_in_flight=int(in_flight) if in_flight else defaults.max_in_flight,
    )


def _weight(params: Section) -> int:
    """LiteLLM's simple shuffle weighs by `weight`, else by `rpm`, else by `tpm`."""
    weights = [params.number(name) for name in ("weight", "rpm", "tpm")]
    return max(round(next((weight for weight in weights if weight), 1)), 1)


def _remarks(where: str, model: str, name: str, base: str) -> Iterator[Remark]:
    if PROVIDERS[name].is_native_elsewhere:
        message = (
            f"{model} is asked through its provider's OpenAI-compatible API, which can do less"
        )
        yield Remark(where=where, message=message, left_out=False)
    if name == _AZURE and base.endswith("}"):
        yield Remark(where=where, message=f"{base} must not end in a slash", left_out=False)
