"""What a request is for, by its method and raw path.

A base URL may leave out `/v1`; then only the paths of OpenAI's API are taken for its. There is no
CORS: keys do not belong into browsers, so `OPTIONS` is a method like any other.
"""

from urllib.parse import unquote

import msgspec

from proxy.call import Surface
from proxy.errors import ClientError
from proxy.request.wire import surface_of

_WITHOUT_PREFIX = frozenset({
    "assistants", "audio", "batches", "chat", "completions", "containers", "conversations",
    "embeddings", "evals", "files", "fine_tuning", "images", "models", "moderations", "realtime",
    "responses", "threads", "uploads", "vector_stores", "videos",
})  # fmt: skip
_METHODS = {
    Surface.CHAT: ("POST", "GET"),  # GET lists what the provider has stored
    Surface.COMPLETIONS: ("POST",),
    Surface.EMBEDDINGS: ("POST",),
    Surface.RESPONSES: ("POST",),
}
_READ = ("GET", "HEAD")
_DOTS = frozenset({".", ".."})
_MOST_DECODINGS = 4
"""More than any chain of servers does; what is not plain by then is refused."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes. Not `surface` and not `models`: it is passed through."""

    path: str
    """Below `/v1`, as the client wrote it."""
    surface: Surface | None = None
    """Whose answers can be kept."""
    models: bool = False
    """The list of models, or one of them."""


def target_of(method: str, raw_path: str) -> Target:
    """Raises ClientError: 404 for a path outside of the API, 405 for a method that a path does not
    have, 400 for one that would lead elsewhere at the upstream."""
    usual = _USUAL.get((method, raw_path))
    if usual is not None:
        return usual
    if _climbs(raw_path):
        raise ClientError(400, "`.` and `..` are no parts of a path here.", param="path")
    path = _below_v1(raw_path)
    if path is None:
        text = f"Invalid URL ({method} {raw_path[:200]}): the API is below /v1."
        raise ClientError(404, text, code="unknown_url")
    surface = surface_of(path)
    if surface is not None:
        if method not in _METHODS[surface]:
            raise _not_allowed(method, path, _METHODS[surface])
        return Target(path=path, surface=surface if method == "POST" else None)
    if path.rstrip("/") == "/models" and method not in _READ:
        raise _not_allowed(method, path, _READ)
    is_models = path == "/models" or path.startswith("/models/")
    return Target(path=path, models=is_models and method in _READ)


def is_cached(url: bytes) -> bool:
    """Whether answers there tell what became of their request, errors too."""
    path = _below_v1(url.partition(b"?")[0].decode("latin-1"))
    return path is not None and surface_of(path) is not None


def _climbs(path: str) -> bool:
    """Routes are chosen by the path as it stands: an upstream must not find another one in it. Some
    servers decode once more than those before them, and some take `..;a=1` for `..`."""
    if "." not in path and "%" not in path:
        return False
    for _ in range(_MOST_DECODINGS):
        segments = path.replace("\\", "/").split("/")
        if any(segment.partition(";")[0] in _DOTS for segment in segments):
            return True
        decoded = unquote(path)
        if decoded == path:
            return False
        path = decoded
    return True


def _below_v1(path: str) -> str | None:
    while "//" in path:
        path = path.replace("//", "/")
    if path.startswith("/v1/"):
        return path[3:]
    slash, first = path[:1], path[1:].partition("/")[0]
    return path if slash == "/" and first in _WITHOUT_PREFIX else None


def _not_allowed(method: str, path: str, allowed: tuple[str, ...]) -> ClientError:
    text = f"{method} is not allowed for /v1{path}; {' and '.join(allowed)} are."
    if len(allowed) == 1:
        text = f"{method} is not allowed for /v1{path}; {allowed[0]} is."
    return ClientError(405, text, code="method_not_allowed", allow=allowed)


_USUAL = {
    ("POST", prefix + surface.value): Target(path=surface.value, surface=surface)
    for surface in Surface
    for prefix in ("/v1", "")
}
"""What nearly all requests are for."""
