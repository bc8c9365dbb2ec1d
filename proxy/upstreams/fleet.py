"""An upstream of remote servers."""

import ssl
from collections.abc import Mapping

from proxy.errors import ConfigError
from proxy.settings.upstreams import Upstream
from proxy.upstreams.base import EngineProfile, PagePurge, PrefixTree
from proxy.upstreams.remote import RemoteServer
from proxy.upstreams.transport import Transport, tls_context


class RemoteUpstream:
    """See `proxy.upstreams.base.Upstream`. Its servers are alike: each may answer every request."""

    def __init__(self, name: str, config: Upstream) -> None:
        """Raises ConfigError where the certificates of the config cannot be used, or the proxy
        of the environment."""
        try:
            context = tls_context(config)
        except OSError as error:
            # The texts of OpenSSL name no file, and no secret either.
            raise ConfigError([f"upstreams.{name}.tls: {error}"]) from error
        self.name = name
        self.servers = tuple(self._server(base.url, config, context) for base in config.bases)

    @property
    def identity(self) -> str:
        """Its name: what the servers at its URLs are, only the config knows."""
        return self.name

    @property
    def models(self) -> tuple[str, ...]:
        """Unknown; they would have to be asked."""
        return ()

    @property
    def has_engine(self) -> bool:
        return False

    async def start(self) -> None:
        """Nothing to load: connections are made when they are needed."""

    async def state(self) -> str:
        """`ready`, or what is wrong with servers that the last request did not reach."""
        states = [server.state for server in self.servers]
        return "; ".join(dict.fromkeys(state for state in states if state != "ready")) or "ready"

    async def purge(self, purge: PagePurge) -> int:
        """It keeps nothing that we know of."""
        return 0

    async def figures(self) -> Mapping[str, int]:
        """Its own; nobody asks."""
        return {}

    async def profile(self, *, num_steps: int, longest_s: float) -> EngineProfile | None:
        """Its steps are its own."""
        return None

    async def prefix_tree(self, *, max_nodes: int) -> PrefixTree | None:
        """What it keeps, nobody sees."""
        return None

    async def close(self) -> None:
        """Close all connections."""
        for server in self.servers:
            await server.close()

    def _server(self, base_url: str, config: Upstream, context: ssl.SSLContext) -> RemoteServer:
        connect_s = config.timeout.connect
        try:
            transport = Transport(base_url, context=context, connect_s=connect_s)
        except ValueError as error:
            raise ConfigError([f"upstreams.{self.name}: {error}"]) from None
        return RemoteServer(base_url, upstream=self.name, config=config, transport=transport)
