"""Tensor types, one file each. Imports `messaging`, `core` and below."""
