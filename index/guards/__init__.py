"""Differences between two prompts that no similarity can be trusted to see.

Each module holds one guard: what it reads of one text, and what it says of two. All are pure, know
nothing of embeddings, and are meant for short prompts, English first.
"""
