"""Historical path of `combine_pointers`."""

from syft.tensors.multi_pointer import combine_pointers

__all__ = ["combine_pointers"]
