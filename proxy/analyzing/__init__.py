"""A log replayed against policies, offline: what they bring, and what would bring more."""
