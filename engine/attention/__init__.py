"""Attention over pages: one call a layer, behind which kernels can stand."""
