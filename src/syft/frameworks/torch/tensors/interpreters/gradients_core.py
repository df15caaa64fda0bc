"""Historical path of the tools that gradient functions are made with."""

from syft.tensors.gradient_functions import (
    Accumulate,
    GradFunc,
    apply_dim_transformations,
    forward_grad,
    get_mismatch_dims,
)

__all__ = ["Accumulate", "GradFunc", "apply_dim_transformations", "forward_grad", "get_mismatch_dims"]
