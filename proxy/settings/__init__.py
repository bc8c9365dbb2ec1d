"""The config: its types, and how a file becomes one of them or a list of mistakes."""
