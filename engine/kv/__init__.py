"""The KV cache: pages and how they are filled, who owns them, and what is found again."""
