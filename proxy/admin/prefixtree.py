"""What an engine keeps of prompts, as a tree."""

from typing import Annotated

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromQuery, QueryParameter

from proxy.admin.engines import told
from proxy.admin.office import Office
from proxy.upstreams.base import PrefixTree

MOST_NODES = 1000


@get("/engine/prefix-tree")
async def prefix_tree(
    office: NamedDependency[Office],
    upstream: FromQuery[str | None] = None,
    nodes: Annotated[int, QueryParameter(ge=1, le=MOST_NODES)] = 100,
) -> PrefixTree:
    """The beginnings of prompts whose pages are kept in memory, the largest ones first by what lies
    below them; none of their text. `upstream` may be left out where there is one engine."""
    return await told(office.kept.prefix_tree(upstream, max_nodes=nodes))
