"""The package that documents of 2019 call `syft.frameworks.torch.crypto`."""
