"""Historical path of the pointers."""
