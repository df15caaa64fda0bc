"""Places where tensors live. Imports `serde`, `tensors`, `messaging`, `core` and below."""
