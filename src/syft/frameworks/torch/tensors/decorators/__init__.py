"""Historical path of `LoggingTensor`."""
