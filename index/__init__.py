"""What may be served again: entries, tags, stores, embeddings, vectors, verdicts."""
