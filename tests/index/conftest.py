"""Redis servers that the tests of this folder share; each test begins with an empty one."""

import contextlib

import pytest
from redis_servers import RedisServer, start_cluster


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory):
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory):
    with contextlib.ExitStack() as stack:
        servers = start_cluster(tmp_path_factory.mktemp("cluster"))
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
