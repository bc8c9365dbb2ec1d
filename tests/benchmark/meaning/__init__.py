"""Parts of `tests/benchmark/semantic.py`: sets, policies, counts and tables."""
