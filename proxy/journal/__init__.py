"""The request log: what went through, on disk, bounded; and taking one's data out of it again."""
