"""The package that documents of 2019 and 2020 call `syft.frameworks.torch`."""
