"""LiteLLM's cache as a store, a policy and, for answers by meaning, an embedder."""

import msgspec

from proxy.litellm.section import Remark, Section

_ASKED = {"completion", "acompletion"}
_EMBEDDED = {"embedding", "aembedding"}
_ON_REDIS = {"redis", "redis-semantic", "valkey-semantic"}
_BY_MEANING = {"redis-semantic", "qdrant-semantic", "valkey-semantic"}
_IN_FILES = {"disk", "s3", "gcs", "azure-blob", "qdrant-semantic"}


class Caching(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept, and where. `redis` is a URL, `in_file`: the store is a file; neither: memory
    alone."""

    chats: bool = False
    embeddings: bool = False
    redis: str = ""
    in_file: bool = False
    by_meaning: bool = False
    ttl_s: float | None = None
    remarks: tuple[Remark, ...] = ()

    @property
    def is_used(self) -> bool:
        """Some route keeps answers."""
        return self.chats or self.embeddings


def caching_of(settings: Section) -> Caching:
    """Reads `cache` and `cache_params` of `litellm_settings`."""
    is_on = settings.flag("cache")
    params = settings.part("cache_params")
    if not is_on:
        params.forget()
        return Caching()
    remarks: list[Remark] = []
    kind = params.text("type") or "local"
    kinds = set(map(str, params.items("supported_call_types"))) or _ASKED | _EMBEDDED
    opts_in = params.text("mode") == "default_off"
    if opts_in:
        message = "callers cannot switch the cache on for a request: no route uses it"
        remarks.append(Remark(where=f"{params.path}.mode", message=message, left_out=True))
    by_meaning = kind in _BY_MEANING
    remarks += _of_meaning(params) if by_meaning else []
    remarks += _of_kind(kind, params)
    return Caching(
        chats=bool(kinds & _ASKED) and not opts_in,
        embeddings=bool(kinds & _EMBEDDED) and not opts_in,
        redis=_redis_url(params) if kind in _ON_REDIS else "",
        in_file=kind in _IN_FILES,
        by_meaning=by_meaning,
        ttl_s=_ttl(params),
        remarks=tuple(remarks),
    )


def _ttl(params: Section) -> float | None:
    """LiteLLM has one of its own for each tier; the store's is the one that counts."""
    names = ("ttl", "default_in_redis_ttl", "default_in_memory_ttl")
    return next((ttl for ttl in [params.number(name) for name in names] if ttl), None)


def _of_kind(kind: str, params: Section) -> list[Remark]:
    if kind not in _IN_FILES:
        if kind in _ON_REDIS | {"local"}:
            return []
        message = f"{kind} is not known; answers are kept in memory"
        return [Remark(where=f"{params.path}.type", message=message, left_out=True)]
    for name in ("disk_cache_dir", "s3_bucket_name", "gcs_bucket_name"):
        params.text(name)
    message = f"{kind}: answers are kept in a file of this machine"
    return [Remark(where=f"{params.path}.type", message=message, left_out=False)]


def _of_meaning(params: Section) -> list[Remark]:
    found = []
    if params.number("similarity_threshold") is not None:
        message = (
            "similarities of another embedding model mean something else: the embedder's own "
            "threshold is used, and audits watch how many answers are wrong"
        )
        where = f"{params.path}.similarity_threshold"
        found.append(Remark(where=where, message=message, left_out=False))
    names = ("redis", "qdrant", "valkey")
    models = [params.text(f"{name}_semantic_cache_embedding_model") for name in names]
    if any(models):
        message = "questions are embedded here, by a small model, instead of asking an API for it"
        found.append(Remark(where=params.path, message=message, left_out=False))
    return found


def _redis_url(params: Section) -> str:
    """Where LiteLLM is told nothing, it looks into the environment."""
    if url := params.text("url") or params.text("redis_url"):
        return url
    nodes = params.items("redis_startup_nodes")
    first = Section(nodes[0]) if nodes and isinstance(nodes[0], dict) else params
    host = first.text("host") or "${REDIS_HOST:-127.0.0.1}"
    port = first.text("port") or "${REDIS_PORT:-6379}"
    password = params.text("password") or "${REDIS_PASSWORD:-}"
    scheme = "rediss" if params.flag("ssl") else "redis"
    return f"{scheme}://{params.text('username')}:{password}@{host}:{port}/{params.text('db') or 0}"
