"""Historical path of `syft.federated`."""
