"""Several replicas of the proxy on one Redis."""

import pytest
from store_process import Process


@pytest.mark.parametrize("kind", ["", "#filter", "cluster"])
def test_three_replicas_never_serve_what_any_of_them_has_purged(kind, request, tmp_path):
    if kind == "cluster":
        url = request.getfixturevalue("empty_cluster")[0].url
    else:
        url = request.getfixturevalue("empty_redis").url + kind
    shared = tmp_path / "purged"
    shared.write_bytes(bytes(64))
    workers = [Process("contend", url, shared, seed, 1200) for seed in range(3)]
    reports = [worker.end()[0] for worker in workers]
    assert [worker.process.returncode for worker in workers] == [0] * 3
    assert sum(report["violations"] for report in reports) == 0
    assert all(report["hits"] > 100 and report["purges"] > 20 for report in reports)


def test_purge_in_one_replica_is_seen_by_the_next_get_in_the_other(empty_redis):
    here, there = (Process("serve", empty_redis.url) for _ in range(2))
    assert here.answer() == there.answer() == "open"
    for number in range(20):
        assert here.call("put", ["a", f"answer {number}", ["doc:1"]])
        for _ in range(2):  # the second is a hit in its memory tier
            assert there.call("get", "a") == ["fresh", f"answer {number}"]
        assert here.call("purge", "doc:1") == number + 1
        assert there.call("get", "a")[1] is None
    assert here.end() == there.end() == []
