"""The chain of tensor types and the engine that walks it. Imports only `syft.exceptions`."""
