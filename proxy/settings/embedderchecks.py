"""Checks of the embedder: its server's URL, the scripts that it reads. Pure."""

from collections.abc import Iterator

from index.embedders.scripts import SCRIPTS
from proxy.settings.embedder import Embedder
from proxy.settings.finding import Finding
from proxy.settings.tree import Path, suggest
from proxy.settings.upstreamchecks import check_base_url


def check_embedder(embedder: Embedder, path: Path) -> Iterator[Finding]:
    """Everything but the model, which depends on the machine."""
    if embedder.base_url is not None:
        yield from check_base_url(embedder.base_url, (*path, "base_url"))
    known = {script.lower() for script in SCRIPTS}
    for place, script in enumerate(embedder.scripts or ()):
        if embedder.scripts != "any" and script.lower() not in known:
            message = f"no script is called `{script}`{suggest(script.lower(), known)}"
            yield Finding(path=(*path, "scripts", place), message=message)
