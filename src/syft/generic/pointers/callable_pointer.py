"""Historical path of `CallablePointer`."""

from syft.tensors.object_wrapper import CallablePointer

__all__ = ["CallablePointer"]
