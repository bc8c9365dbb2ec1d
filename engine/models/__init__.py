"""Decoder-only models, layer by layer."""
