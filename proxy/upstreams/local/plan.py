"""What the bundled engine's memory would hold, before it is started."""

from engine.errors import ModelUnusable
from engine.plan import MemoryPlan, plan_memory
from engine.sources.weights import locate
from proxy.errors import ConfigError
from proxy.settings.engine import Engine
from proxy.upstreams.local.config import engine_config

__all__ = ["MemoryPlan", "planned"]

_HUB = "hf:"


def planned(engine: Engine) -> MemoryPlan | None:
    """None for a model of the hub, which may have to be downloaded first. Raises ConfigError, which
    names no place, when there is no such model, or none that we can run."""
    if engine.model.startswith(_HUB):
        return None
    try:
        return plan_memory(engine_config(engine), locate(engine.model))
    except ModelUnusable as error:
        raise ConfigError([str(error)]) from error
