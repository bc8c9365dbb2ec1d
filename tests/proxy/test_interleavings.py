"""After a purge has returned, no request that starts later is answered from what it covered:
whatever else is under way, in every replica, over the real stores."""

import logging
from collections import Counter

import pytest
from interleaving import World, read_config, violations
from pausing import open_stores

NUM_SEEDS = {"memory": 300, "sqlite": 60, "redis": 60}


@pytest.fixture(autouse=True)
def no_warnings_logged():
    """Upstreams fail here by the hundred."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
async def test_what_was_purged_answers_no_later_request(kind, request, tmp_path):
    config, outcomes = read_config(tmp_path), Counter()
    url = request.getfixturevalue("empty_redis").url if kind == "redis" else ""
    async with open_stores(kind, tmp_path, url) as stores:
        for seed in range(NUM_SEEDS[kind]):
            assert await violations(World(config, stores, seed), outcomes) == [], f"seed {seed}"
        for store in stores:
            await store.check_integrity()
    # What never happened was not tested.
    assert set(outcomes) >= {"exact", "semantic", "stale", "coalesced", "miss", "bypass"}
    assert set(outcomes) >= {"embeddings exact", "embeddings miss"}
    assert {"stale-while-revalidate", "stale-if-error", "max-stale"} <= set(outcomes)
