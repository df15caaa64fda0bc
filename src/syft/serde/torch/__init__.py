"""Historical path of how tensors become bytes."""
