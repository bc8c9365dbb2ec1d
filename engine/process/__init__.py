"""The worker process, and the ways to it."""
