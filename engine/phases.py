"""Names of what a step does, as they stand in a profiler's trace (`engine.profile`)."""

SCHEDULING = "engine: scheduling"
MODEL = "engine: model"
SAMPLING = "engine: sampling"
ATTENTION = "engine: attention"
"""Where no C++ kernel attends: those count by themselves."""
