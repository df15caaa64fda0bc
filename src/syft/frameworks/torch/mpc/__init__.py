"""The package that documents of 2020 call `syft.frameworks.torch.mpc`."""
