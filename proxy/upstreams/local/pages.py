"""What is kept of prompts: whose it is, what purges take, and what is there; the proxy's words in
the engine's terms, and back."""

from collections.abc import Awaitable, Callable

import msgspec

from engine.process.protocol import Moment, Outlined, Purge, Sharing
from index.entry import Snapshot
from index.tags import model_tag, union
from proxy.upstreams.base import PagePurge, PrefixNode, PrefixTree, Provenance

Look = Callable[[], Awaitable[Snapshot | None]]
"""How far purges have come by now; None where the store fails."""


async def unseen() -> Snapshot | None:
    """For an upstream that stands without a store."""
    return None


async def sharing_of(provenance: Provenance, look: Look, *, model: str) -> Sharing:
    """A request that saw no store, since it is not to be cached, is as old as this call. `model`:
    the engine's own name for its model, whose purge also drops pages."""
    snapshot = provenance.snapshot or await look()
    tags = provenance.tags
    return Sharing(
        isolation=provenance.isolation,
        tags=None if tags is None else union(tags, (model_tag(model),)),
        as_of=None if snapshot is None else _moment(snapshot),
        publishes=provenance.may_keep,
    )


def purge_of(purge: PagePurge) -> Purge:
    return Purge(
        tags=purge.tags,
        everything=purge.everything,
        dry_run=purge.dry_run,
        moment=_moment(purge.snapshot),
    )


def prefix_tree_of(upstream: str, outlined: Outlined) -> PrefixTree:
    return PrefixTree(
        upstream=upstream,
        num_nodes=outlined.num_nodes,
        num_tokens=outlined.num_tokens,
        nodes=tuple(msgspec.convert(outlined.nodes, list[PrefixNode], from_attributes=True)),
    )


def _moment(snapshot: Snapshot) -> Moment:
    return Moment(generation=snapshot.generation, sequence=snapshot.sequence)
