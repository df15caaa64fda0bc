"""Historical path of `HookedTensor`."""

from syft.tensors.numpy_array import HookedTensor

__all__ = ["HookedTensor"]
