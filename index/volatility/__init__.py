"""Prompts whose answer changes by itself, or is another for each person."""
