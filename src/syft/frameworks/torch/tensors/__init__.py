"""Historical path of the tensor types."""
