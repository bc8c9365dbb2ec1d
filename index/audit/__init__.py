"""How often served hits are wrong: labels, bounds on their share, and what follows. Pure."""
