"""Misses: one request to an upstream for all who ask the same, and what is kept of its answer."""
