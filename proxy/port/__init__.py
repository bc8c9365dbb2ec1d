"""The data port: bytes in, bytes out, and what is passed through untouched."""
