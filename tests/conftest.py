"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# Examples are judged by what they show, not by how long a busy machine takes over them.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("default")
