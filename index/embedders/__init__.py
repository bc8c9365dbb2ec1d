"""Text to unit vectors: models on disk, of a hub, or of a server."""
