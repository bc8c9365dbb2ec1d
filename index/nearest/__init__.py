"""The nearest vectors of a scope, in step with the store."""
