"""The OpenAI-compatible caching reverse proxy: HTTP in, answers out."""
