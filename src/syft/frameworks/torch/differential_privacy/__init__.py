"""Historical path of `syft.dp`."""
