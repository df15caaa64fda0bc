"""Historical path of `StringPointer`."""

from syft.tensors.string import StringPointer

__all__ = ["StringPointer"]
