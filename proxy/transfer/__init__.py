"""Stored answers on their way out of a store and into one: export, import, pairs to warm with."""
