"""Historical path of homomorphic encryption."""
