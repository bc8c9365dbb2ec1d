"""Processes and sockets: the parent, its workers, what they say to each other, and listening."""
