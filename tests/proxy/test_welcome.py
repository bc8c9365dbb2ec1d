"""The first request that a new user is shown."""

import socket

import pytest

from proxy.processes.lifetime import Ports
from proxy.processes.server import Listening
from proxy.processes.welcome import welcome
from proxy.settings.address import Tcp
from proxy.settings.config import Config, Tenants


@pytest.mark.parametrize(
    ("tenants", "key"),
    [
        (None, "any"),
        (Tenants(keys={"sk-1": "acme"}, anonymous=True), "any"),
        (Tenants(keys={"sk-1": "acme"}), "A KEY OF `tenants.keys`"),
    ],
    ids=["none", "anonymous too", "known keys only"],
)
def test_the_first_request_has_a_key_that_will_do_or_says_which(tenants, key):
    with socket.socket() as one:
        listening = Listening(socket=one, address=Tcp(host="127.0.0.1", port=0))
        ports = Ports(data=[listening], admin=listening)
        said = welcome(Config(upstreams={}, routes=(), tenants=tenants), ports, ("m",))
    assert f'api_key="{key}"' in said
    assert "sk-1" not in said
