"""Historical path of `CallablePointer`."""

from syft.tensors.object_wrapper import CallablePointer, create_callable_pointer

__all__ = ["CallablePointer", "create_callable_pointer"]
