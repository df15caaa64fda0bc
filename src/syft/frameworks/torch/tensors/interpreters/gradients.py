"""Historical path of the gradient functions, one class per operation."""

from syft.frameworks.torch.tensors.interpreters.gradients_core import GradFunc
from syft.tensors.gradient_functions import (
    AddBackward,
    AsinBackward,
    DivBackward,
    MatmulBackward,
    MulBackward,
    PowBackward,
    ReluBackward,
    SigmoidBackward,
    SinBackward,
    SinhBackward,
    SqrtBackward,
    SubBackward,
    SumBackward,
    TanhBackward,
    TBackward,
)

__all__ = [
    "AddBackward",
    "AsinBackward",
    "DivBackward",
    "GradFunc",
    "MatmulBackward",
    "MulBackward",
    "PowBackward",
    "ReluBackward",
    "SigmoidBackward",
    "SinBackward",
    "SinhBackward",
    "SqrtBackward",
    "SubBackward",
    "SumBackward",
    "TBackward",
    "TanhBackward",
]
