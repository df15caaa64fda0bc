"""Historical path of `AutogradTensor`."""

from syft.tensors.autograd import AutogradTensor
from syft.tensors.gradient_functions import backwards_grad

__all__ = ["AutogradTensor", "backwards_grad"]
