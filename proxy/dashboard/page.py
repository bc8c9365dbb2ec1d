"""The dashboard's static files."""

from functools import lru_cache
from importlib.resources import files

from litestar import Response, get, route
from litestar.params import FromPath

from proxy.errors import ClientError
from proxy.health import METHODS

# litestar adds the charset of what is text.
_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


@route("/", http_method=METHODS, sync_to_thread=False)
def page() -> Response[bytes]:
    """The dashboard. Holds no data: it asks the endpoints of this port, with the token."""
    return _response("index.html")


@get("/dashboard/page/{name:str}", sync_to_thread=False)
def page_file(name: FromPath[str]) -> Response[bytes]:
    """A style sheet, script or picture of it."""
    if name not in _contents():
        raise ClientError(404, f"The dashboard has no file {name[:80]!r}.", code="not_found")
    return _response(name)


def _response(name: str) -> Response[bytes]:
    media_type = _TYPES[name.rpartition(".")[2]]
    return Response(_contents()[name], media_type=media_type, headers=_HEADERS)


@lru_cache(maxsize=1)
def _contents() -> dict[str, bytes]:
    folder = files("proxy.dashboard") / "page"
    return {
        one.name: one.read_bytes()
        for one in folder.iterdir()
        if one.name.rpartition(".")[2] in _TYPES
    }
