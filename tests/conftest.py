"""Settings of all tests, and the Redis servers that they share: empty when a test begins."""

import contextlib
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from redis_servers import RedisServer, start_cluster

# Examples are judged by what they show, not by how long a busy machine takes over them.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("default")

# The GPU's kernels run in Triton's interpreter, unless 0 is set. Triton decides it when it is
# imported, and torch may do that at any time.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Who opens a client reads every certificate that the machine trusts: 40 ms, some thousand times,
# for servers that have none. What does meet a certificate here is told whom to trust.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("nobody.pem"))


# Files of more than fifteen seconds. One that begins last keeps one of two workers waiting.
LONG = re.compile(
    r"tests/(e2e|symptoms|docs)/|test_(dashboard_workers|page|supervisor|mutations|reload|"
    r"reload_engine|upstream_local\w*|erasure_pages|engine_operating|meaning_workers|tracing|fuzz|"
    r"runtimes|sqlite_processes|store_model|relay|swap|client|archive|profile|model|gemma|"
    r"kernels_\w+|triton_\w+)\.py$"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.search(item.path.as_posix()) is None)


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory):
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory):
    servers = start_cluster(tmp_path_factory.mktemp("cluster"))
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.stop)
        yield servers


@pytest.fixture
def empty_redis(shared_redis):
    with shared_redis.client() as client:
        client.flushall()
    return shared_redis


@pytest.fixture
def empty_cluster(shared_cluster):
    for server in shared_cluster:
        with server.client() as client:
            client.flushall()
    return shared_cluster
