"""The figures of engines, as metrics show them."""

from index.memory import MemoryStore
from proxy.kept import Kept


class Engine:
    """The one method of an upstream that is asked here."""

    async def figures(self):
        return {"steps": 7}


def steps(kept):
    return [
        sample.value
        for family in kept.collect()
        for sample in family.samples
        if sample.name == "rejoinder_engine_steps"
    ]


async def test_whoever_only_looks_at_an_engine_does_not_show_it_in_its_metrics():
    # Several workers share an engine: were all to show it, sums would have it several times.
    kept = Kept(lambda: {"local": Engine()}, store=MemoryStore(max_bytes=1024))
    assert await kept.figures() == {"local": {"steps": 7}}
    assert steps(kept) == []
    await kept.hear()
    assert steps(kept) == [7]
