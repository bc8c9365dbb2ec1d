"""Embeddings, cached one input at a time: a batch sends on only what is not known yet."""
