"""Historical path of the parts of the hook."""
